/**
 * Serves report files to whoever has a signed link. Outside the contract: a browser follows the link without any token.
 */
import { createReadStream } from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import type { RequestHandler } from 'express'
import type { Clock } from '../clock.ts'
import type { Keys } from '../crypto.ts'
import { DomainError, notFound } from '../errors.ts'
import { isIdShaped } from '../ids.ts'
import { isValidReportLink, REPORT_LINK_PREFIX } from './report-link.ts'

export function reportFolder(dataDir: string): string {
  return join(dataDir, 'reports')
}

export function serveReportFiles(deps: { keys: Keys; clock: Clock; dataDir: string }): RequestHandler {
  return async (req, res, next) => {
    if (!req.path.startsWith(REPORT_LINK_PREFIX)) return next()
    const reportId = req.path.slice(REPORT_LINK_PREFIX.length)
    // Nothing else can name a file, so that no path leads out of the folder.
    if (!isIdShaped(reportId)) return next()
    res.locals.trace.route = `${REPORT_LINK_PREFIX}{id}`
    if (req.method !== 'GET') {
      throw new DomainError('method_not_allowed', 'method_not_allowed', 'this path takes GET', {
        headers: { Allow: 'GET' },
      })
    }
    const query = new URLSearchParams(req.url.split('?')[1] ?? '')
    if (!isValidReportLink(deps.keys, reportId, query, deps.clock.now())) {
      throw new DomainError('forbidden', 'invalid_report_link', 'the link is wrong or expired: list the reports again')
    }
    const file = await openReport(join(reportFolder(deps.dataDir), `${reportId}.pdf`))
    res.setHeader('Content-Type', 'application/pdf')
    res.setHeader('Content-Disposition', `inline; filename="report-${reportId}.pdf"`)
    res.setHeader('Content-Length', (await file.stat()).size)
    if (res.locals.readiness.isDraining) res.setHeader('Connection', 'close')
    // A reader who goes away in the middle is no fault; the log line says that it was aborted.
    await pipeline(createReadStream('', { fd: file }), res).catch(() => {})
  }
}

async function openReport(path: string) {
  try {
    return await open(path, 'r')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') throw notFound('the file of this report is gone')
    throw error
  }
}
