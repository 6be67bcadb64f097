/**
 * The rendered contracts, at `/docs`: one self-contained page each, built beforehand (`make docs`; `make run` does it too).
 */
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import type { Request, RequestHandler, Response } from 'express'
import { DomainError, notFound } from './errors.ts'
import { isKnown } from './representation.ts'

export type ContractName = 'client' | 'operator'

/** Where the pages of an installation are. */
export function referenceDirOf(dataDir: string): string {
  return join(dataDir, 'docs')
}

export function referencePageOf(referenceDir: string, contract: ContractName): string {
  return join(referenceDir, `${contract}.html`)
}

export interface ReferenceDeps {
  referenceDir: string
  serves: Record<ContractName, boolean>
}

/**
 * The page brings all its script and style along and needs nothing from anywhere: so it may ask nobody for anything, whatever
 * the renderer would like to (icons, usage figures).
 */
const CONTENT_SECURITY_POLICY = [
  `default-src 'none'`,
  `script-src 'unsafe-inline'`,
  `style-src 'unsafe-inline'`,
  'img-src data:',
  'font-src data:',
  'worker-src blob:',
  `base-uri 'none'`,
  `form-action 'none'`,
  `frame-ancestors 'none'`,
].join('; ')

const TITLES: Record<ContractName, string> = {
  client: 'For integrators',
  operator: 'For the operator of the service',
}

/** Serves the pages of the contracts that this listener serves. */
export function serveReference({ referenceDir, serves }: ReferenceDeps): RequestHandler {
  const served = (['client', 'operator'] as const).filter((contract) => serves[contract])
  return async (req, res, next) => {
    const contract = served.find((name) => req.path === `/docs/${name}`)
    if (!contract && req.path !== '/docs') return next()
    res.locals.trace.route = req.path
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      throw new DomainError('method_not_allowed', 'method_not_allowed', 'this path takes GET, HEAD', {
        headers: { Allow: 'GET, HEAD' },
      })
    }
    res.setHeader('Content-Type', 'text/html; charset=utf-8')
    res.setHeader('Content-Security-Policy', CONTENT_SECURITY_POLICY)
    if (res.locals.readiness.isDraining) res.setHeader('Connection', 'close')
    if (contract) await sendPage(req, res, referencePageOf(referenceDir, contract))
    else res.end(req.method === 'HEAD' ? undefined : await indexPage(referenceDir, served))
  }
}

async function sendPage(req: Request, res: Response, file: string): Promise<void> {
  const found = await stat(file).catch(() => undefined)
  if (!found) {
    res.removeHeader('Content-Security-Policy')
    throw notFound('the reference is not built yet: run `make docs`')
  }
  const etag = `"${found.size}-${Math.round(found.mtimeMs)}"`
  res.setHeader('ETag', etag)
  // Kept, and asked for each time: a new version's page shows at once.
  res.setHeader('Cache-Control', 'no-cache')
  if (isKnown(req, etag)) {
    res.statusCode = 304
    res.end()
    return
  }
  res.setHeader('Content-Length', found.size)
  if (req.method === 'HEAD') {
    res.end()
    return
  }
  // A reader who goes away in the middle is no fault; the log line says that it was aborted.
  await pipeline(createReadStream(file), res).catch(() => {})
}

async function indexPage(referenceDir: string, served: ContractName[]): Promise<string> {
  const links: string[] = []
  for (const contract of served) {
    const isBuilt = await stat(referencePageOf(referenceDir, contract)).catch(() => undefined)
    const title = TITLES[contract]
    links.push(isBuilt ? `<li><a href="/docs/${contract}">${title}</a></li>` : `<li>${title}: not built yet, run <code>make docs</code></li>`) // prettier-ignore
  }
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Laboratory Integration Service: reference</title>
<style>body { font: 16px/1.5 system-ui, sans-serif; max-width: 40em; margin: 4em auto; padding: 0 1em }</style>
<h1>Laboratory Integration Service</h1>
<ul>${links.join('')}</ul>
</html>
`
}
