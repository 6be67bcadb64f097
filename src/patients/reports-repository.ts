import type { Knex } from 'knex'

export interface Report {
  id: string
  accountId: string
  labId: string
  patientId: string
  /** Patients see what is signed off. */
  status: 'draft' | 'signed_off'
  reportDate: Date
  /** Names, as they stand in the report. */
  tests: string[]
  createdAt: Date
}

/** A report as its patient sees it in a list. */
export interface PatientReport {
  id: string
  reportDate: Date
  labName: string
  patientName: string
  tests: string[]
}

export async function insertReport(knex: Knex, report: Report): Promise<void> {
  await knex('reports').insert({
    id: report.id,
    account_id: report.accountId,
    lab_id: report.labId,
    patient_id: report.patientId,
    status: report.status,
    report_date: report.reportDate,
    tests: JSON.stringify(report.tests),
    created_at: report.createdAt,
    updated_at: report.createdAt,
  })
}

/**
 * Signed off reports of every patient of the account with this contact at the lab, the newest first. Sorted here: MySQL sorts JSON
 * with its rows, and refuses a row that is larger than its buffer for that.
 */
export async function listReportsOfContact(
  knex: Knex,
  accountId: string,
  labId: string,
  contact: string,
): Promise<PatientReport[]> {
  const rows = await knex('patients as p')
    .join('reports as r', 'r.patient_id', 'p.id')
    .join('labs as l', 'l.id', 'r.lab_id')
    .where({ 'p.account_id': accountId, 'p.contact': contact })
    .where({ 'r.account_id': accountId, 'r.lab_id': labId, 'r.status': 'signed_off' })
    .select('r.id', 'r.report_date', 'r.tests', { lab_name: 'l.name', patient_name: 'p.name' })
  rows.sort((a, b) => b.report_date - a.report_date || (a.id < b.id ? 1 : -1))
  return rows.map((row) => ({
    id: row.id,
    reportDate: row.report_date,
    labName: row.lab_name,
    patientName: row.patient_name,
    // MariaDB answers JSON as text, MySQL as a value.
    tests: typeof row.tests === 'string' ? JSON.parse(row.tests) : row.tests,
  }))
}
