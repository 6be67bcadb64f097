/**
 * Serves report files to whoever has a signed link. Outside the contract: a browser follows the link without any token.
 */
import type { FileHandle } from 'node:fs/promises'
import { pipeline } from 'node:stream/promises'
import type { Request, RequestHandler, Response } from 'express'
import type { Knex } from 'knex'
import type { Clock } from '../clock.ts'
import type { Keys } from '../crypto.ts'
import { DomainError, notFound } from '../errors.ts'
import { isIdShaped } from '../ids.ts'
import { findStoredFileId } from '../reports/bill-reports-repository.ts'
import { rangeOf } from '../reports/byte-range.ts'
import type { ReportStore } from '../reports/report-store.ts'
import { isKnown, isUnexpected } from '../representation.ts'
import { isValidLink, LINK_PREFIXES } from '../signed-link.ts'
import type { Workload } from '../workload.ts'

interface ReportFileDeps {
  knex: Knex
  keys: Keys
  clock: Clock
  reportStore: ReportStore
  workload: Workload
}

export function serveReportFiles(deps: ReportFileDeps): RequestHandler {
  return async (req, res, next) => {
    if (!req.path.startsWith(LINK_PREFIXES.report)) return next()
    const reportId = req.path.slice(LINK_PREFIXES.report.length)
    // Nothing else can name a file, so that no path leads out of the folder.
    if (!isIdShaped(reportId)) return next()
    res.locals.trace.route = `${LINK_PREFIXES.report}{id}`
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      throw new DomainError('method_not_allowed', 'method_not_allowed', 'this path takes GET, HEAD', {
        headers: { Allow: 'GET, HEAD' },
      })
    }
    const query = new URLSearchParams(req.url.split('?')[1] ?? '')
    if (!isValidLink(deps.keys, 'report', reportId, query, deps.clock.now())) {
      throw new DomainError('forbidden', 'invalid_report_link', 'the link is wrong or expired: list the reports again')
    }
    const opened = await openCurrent(deps, reportId)
    if (!opened) throw notFound('the file of this report is gone')
    try {
      await sendFile(req, res, { ...opened, reportId })
    } finally {
      await opened.file.close()
    }
  }
}

/** A draft may be given another file between the look at which it has and its opening. */
async function openCurrent({ knex, reportStore, workload }: ReportFileDeps, reportId: string) {
  const budget = workload.budget()
  let last: string | undefined
  for (;;) {
    const fileId = await budget.spend(() => findStoredFileId(knex, reportId))
    if (fileId === undefined || fileId === last) return undefined
    const file = await reportStore.open(fileId)
    if (file) return { file, fileId }
    last = fileId
  }
}

/** A file never changes under its id, so that the id is its ETag (RFC 9110, 8.8.3). */
async function sendFile(
  req: Request,
  res: Response,
  { file, fileId, reportId }: { file: FileHandle; fileId: string; reportId: string },
): Promise<void> {
  const { size } = await file.stat()
  const etag = `"${fileId}"`
  if (res.locals.readiness.isDraining) res.setHeader('Connection', 'close')
  if (isUnexpected(req, etag)) {
    throw new DomainError('precondition_failed', 'precondition_failed', 'the file is another one by now: start anew')
  }
  // Before anything that a range could be faulted for (RFC 9110 13.2.2).
  if (isKnown(req, etag)) {
    res.statusCode = 304
    res.setHeader('ETag', etag)
    res.end()
    return
  }
  const isCurrent = req.headers['if-range'] === undefined || req.headers['if-range'] === etag
  // Of a HEAD the whole is meant (RFC 9110 14.2).
  const range = isCurrent && req.method === 'GET' ? rangeOf(req.headers.range, size) : undefined
  if (range === 'unsatisfiable') {
    throw new DomainError('range_not_satisfiable', 'range_not_satisfiable', `the file has ${size} bytes`, {
      headers: { 'Content-Range': `bytes */${size}`, 'Accept-Ranges': 'bytes' },
    })
  }
  res.statusCode = range ? 206 : 200
  res.setHeader('Content-Type', 'application/pdf')
  res.setHeader('Content-Disposition', `inline; filename="report-${reportId}.pdf"`)
  res.setHeader('Accept-Ranges', 'bytes')
  res.setHeader('ETag', etag)
  res.setHeader('Content-Length', range ? range.end - range.start + 1 : size)
  if (range) res.setHeader('Content-Range', `bytes ${range.start}-${range.end}/${size}`)
  if (req.method === 'HEAD') {
    res.end()
    return
  }
  const bytes = file.createReadStream({ ...(range ?? {}), autoClose: false })
  // A reader who goes away in the middle is no fault; the log line says that it was aborted.
  await pipeline(bytes, res).catch(() => {})
}
