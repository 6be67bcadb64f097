/**
 * Serves bills and quotations to whoever has a signed link, made when they are asked for. Outside the contract: a patient
 * follows the link without any token.
 */
import type { RequestHandler } from 'express'
import type { Knex } from 'knex'
import { findAccount, type Account } from '../accounts/accounts-repository.ts'
import { findLab } from '../catalogue/labs-repository.ts'
import type { Clock } from '../clock.ts'
import { findEntry } from '../crm/staff-entries-repository.ts'
import { localDay } from '../crm/zoned-time.ts'
import type { Keys } from '../crypto.ts'
import { DomainError, notFound } from '../errors.ts'
import { isValidLink, LINK_PREFIXES } from '../signed-link.ts'
import { textPdf } from '../text-pdf.ts'
import type { Workload } from '../workload.ts'
import { billLines, quotationLines } from './bill-document.ts'
import { isQuotable, nearestAmount } from './bill-rules.ts'
import { findBill, findCataloguePrices } from './bills-repository.ts'

interface DocumentDeps {
  knex: Knex
  keys: Keys
  clock: Clock
  workload: Workload
}

const KINDS = ['bill', 'quotation'] as const

export function serveDocuments(deps: DocumentDeps): RequestHandler {
  return async (req, res, next) => {
    const kind = KINDS.find((known) => req.path.startsWith(LINK_PREFIXES[known]))
    if (kind === undefined) return next()
    const name = req.path.slice(LINK_PREFIXES[kind].length)
    res.locals.trace.route = `${LINK_PREFIXES[kind]}{id}`
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      throw new DomainError('method_not_allowed', 'method_not_allowed', 'this path takes GET, HEAD', {
        headers: { Allow: 'GET, HEAD' },
      })
    }
    const query = new URLSearchParams(req.url.split('?')[1] ?? '')
    if (!isValidLink(deps.keys, kind, name, query, deps.clock.now())) {
      throw new DomainError('forbidden', 'invalid_link', 'the link is wrong or expired: ask the lab for another one')
    }
    const [accountId = '', id = ''] = name.split('/')
    const lines = await deps.workload.budget().spend(async () => {
      const account = await findAccount(deps.knex, accountId)
      return account && LINES_OF[kind](deps, account, id)
    })
    if (!lines) throw notFound(`there is no such ${kind} any more`)
    const file = textPdf(lines)
    res.setHeader('Content-Type', 'application/pdf')
    res.setHeader('Content-Disposition', `inline; filename="${kind}-${id}.pdf"`)
    res.setHeader('Content-Length', file.length)
    if (res.locals.readiness.isDraining) res.setHeader('Connection', 'close')
    res.end(req.method === 'HEAD' ? undefined : file)
  }
}

type Lines = (deps: DocumentDeps, account: Account, id: string) => Promise<string[] | undefined>

const LINES_OF: Record<(typeof KINDS)[number], Lines> = {
  /** A deleted one is shown to nobody. */
  bill: async ({ knex }, account, billId) => {
    const bill = await findBill(knex, account.id, billId)
    const lab = bill && (await findLab(knex, account.id, bill.labId))
    return lab && bill.status !== 'deleted' ? billLines(bill, lab, account.timeZone) : undefined
  },
  /** At the prices of now, which may have fallen below the discount since it was sent. */
  quotation: async ({ knex, clock }, account, leadId) => {
    const entry = await findEntry(knex, account.id, leadId)
    const lab = entry && (await findLab(knex, account.id, entry.labId))
    if (!lab) return undefined
    const known = await findCataloguePrices(knex, account.id, entry)
    if (!isQuotable(entry, known)) return undefined
    const day = localDay(clock.nowMs(), account.timeZone)
    return quotationLines(entry, lab, known, nearestAmount(entry, known), day)
  },
}
