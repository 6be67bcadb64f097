/**
 * Links to report files: signed, for one report and a short time. Who has the link may read the file. Pure.
 */
import { equalInConstantTime, hmacSha256, type Keys } from '../crypto.ts'

export const REPORT_LINK_PREFIX = '/files/reports/'
const TTL_MS = 15 * 60_000

/** @param baseUrl what integrators call this service by, without a slash at the end */
export function reportLink(keys: Keys, baseUrl: string, reportId: string, now: Date): string {
  const expires = Math.floor((now.getTime() + TTL_MS) / 1000)
  const signature = sign(keys, reportId, expires).toString('hex')
  return `${baseUrl}${REPORT_LINK_PREFIX}${reportId}?expires=${expires}&signature=${signature}`
}

/** Whether the query that came with the report's id was made here for it and is not over. */
export function isValidReportLink(keys: Keys, reportId: string, query: URLSearchParams, now: Date): boolean {
  const expires = query.get('expires') ?? ''
  const signature = query.get('signature') ?? ''
  if (!/^[0-9]{1,11}$/.test(expires) || !/^[0-9a-f]{64}$/.test(signature)) return false
  const isOurs = equalInConstantTime(sign(keys, reportId, Number(expires)), Buffer.from(signature, 'hex'))
  return isOurs && Number(expires) * 1000 > now.getTime()
}

function sign(keys: Keys, reportId: string, expires: number): Buffer {
  return hmacSha256(keys.link, `report:${reportId}:${expires}`)
}
