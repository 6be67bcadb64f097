/**
 * Links to files: signed, for one file and a limited time. Who has the link may read the file. Pure.
 */
import { equalInConstantTime, hmacSha256, type Keys } from './crypto.ts'

/** What stands in a link's path before the file's name. */
export const LINK_PREFIXES = {
  report: '/files/reports/',
  bill: '/files/bills/',
  quotation: '/files/quotations/',
} as const

export type LinkedFile = keyof typeof LINK_PREFIXES

/** In a list, which can be asked for again. */
const LISTED_TTL_MS = 15 * 60_000
/** In events and messages, which can arrive a day late, and which a patient opens when there is time. */
const PUBLISHED_TTL_MS = 7 * 24 * 3600_000

/** Links as events and messages carry them. */
export interface PublishedLinks {
  report(reportId: string, now: Date): string
  bill(accountId: string, billId: string, now: Date): string
  quotation(accountId: string, leadId: string, now: Date): string
}

/** @param baseUrl what integrators call this service by, without a slash at the end */
export function publishedLinks(keys: Keys, baseUrl: string): PublishedLinks {
  const link = (file: LinkedFile, name: string, now: Date) =>
    signedLink(keys, baseUrl, { file, name }, now, PUBLISHED_TTL_MS)
  return {
    report: (reportId, now) => link('report', reportId, now),
    bill: (accountId, billId, now) => link('bill', `${accountId}/${billId}`, now),
    quotation: (accountId, leadId, now) => link('quotation', `${accountId}/${leadId}`, now),
  }
}

/** The link of a list. */
export function reportLink(keys: Keys, baseUrl: string, reportId: string, now: Date): string {
  return signedLink(keys, baseUrl, { file: 'report', name: reportId }, now, LISTED_TTL_MS)
}

function signedLink(
  keys: Keys,
  baseUrl: string,
  { file, name }: { file: LinkedFile; name: string },
  now: Date,
  ttlMs: number,
): string {
  const expires = Math.floor((now.getTime() + ttlMs) / 1000)
  const signature = sign(keys, file, name, expires).toString('hex')
  return `${baseUrl}${LINK_PREFIXES[file]}${name}?expires=${expires}&signature=${signature}`
}

/** Whether the query that came with the file's name was made here for it and is not over. */
export function isValidLink(keys: Keys, file: LinkedFile, name: string, query: URLSearchParams, now: Date): boolean {
  const expires = query.get('expires') ?? ''
  const signature = query.get('signature') ?? ''
  if (!/^[0-9]{1,11}$/.test(expires) || !/^[0-9a-f]{64}$/.test(signature)) return false
  const isOurs = equalInConstantTime(sign(keys, file, name, Number(expires)), Buffer.from(signature, 'hex'))
  return isOurs && Number(expires) * 1000 > now.getTime()
}

function sign(keys: Keys, file: LinkedFile, name: string, expires: number): Buffer {
  return hmacSha256(keys.link, `${file}:${name}:${expires}`)
}
