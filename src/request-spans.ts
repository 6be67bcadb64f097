/**
 * A span for each request to an operation, continued from the caller's `traceparent`. Mounted only where tracing is on.
 */
import type { RequestHandler } from 'express'
import type { Trace } from './api.ts'
import type { Clock } from './clock.ts'
import { DomainError } from './errors.ts'
import { withTraceParent } from './trace-context.ts'
import type { Tracing } from './spans.ts'

export function spanRequests(tracing: Tracing, clock: Clock): RequestHandler {
  return (req, res, next) => {
    const { traceparent } = req.headers
    const span = tracing.startRequest(typeof traceparent === 'string' ? traceparent : undefined, clock.now())
    const trace: Trace = res.locals.trace
    // So that a line of the log leads to its trace.
    trace.traceId = span.traceParent?.split('-')[1]
    res.on('close', () => {
      const { route, operation, accountId } = trace
      const { error } = res.locals
      const attributes = {
        'http.request.method': req.method,
        'http.route': route,
        'http.response.status_code': res.headersSent ? res.statusCode : undefined,
        'error.type': error instanceof DomainError ? error.code : error ? 'internal' : undefined,
        'lis.operation': operation,
        'lis.account_id': accountId,
      }
      // The path itself holds ids: its template, or nothing.
      span.end(route ? `${req.method} ${route}` : req.method, attributes, res.statusCode >= 500, clock.now())
    })
    if (span.traceParent) withTraceParent(span.traceParent, next)
    else next()
  }
}
