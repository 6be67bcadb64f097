/**
 * What can be wrong with a setting, in sentences that say what to do. For `config.ts`.
 */
import { X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { BlockList, isIP } from 'node:net'
import { parseEnv } from 'node:util'
import { mysqlTlsFaults } from '../db/mysql-url.ts'

/** A file that is not there holds nothing. */
export function readEnvFile(file: string): { values: NodeJS.Dict<string>; faults: string[] } {
  try {
    // Editors of Windows put a mark before the first name, which would be part of it.
    return { values: parseEnv(readFileSync(file, 'utf8').replace(/^\uFEFF/, '')), faults: [] }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    const faults = code === 'ENOENT' ? [] : [`${file} can't be read (${code}): let this user read it, or remove it`]
    return { values: {}, faults }
  }
}

/** A year. A date that no column can hold would leave the attempt before it unrecorded. */
const LONGEST_WAIT_SECONDS = 31_536_000
/** Of all waits: far more than anybody needs, and fewer than attempts can be counted. */
const MOST_WAITS = 1000

/** Reads `5,300,1800`. */
export function readRetrySchedule(text: string, fallback: string, faults: string[]): number[] {
  const parts = text.split(',').map((part) => part.trim())
  const seconds = parts.map(Number)
  const isUsable = (part: string, n: number) =>
    /^\d+(\.\d+)?$/.test(part) && seconds[n]! > 0 && seconds[n]! <= LONGEST_WAIT_SECONDS
  if (parts.length > MOST_WAITS || !parts.every(isUsable)) {
    faults.push(
      `RETRY_SCHEDULE must be comma-separated seconds above 0 and up to ${LONGEST_WAIT_SECONDS}, ${MOST_WAITS} of them at most (default ${fallback})`,
    )
  }
  return seconds
}

export function isCidr(cidr: string): boolean {
  const [address, prefix, rest] = cidr.split('/')
  const version = isIP(address ?? '')
  if (!version || prefix === undefined || rest !== undefined || !/^\d{1,3}$/.test(prefix)) return false
  if (Number(prefix) > (version === 4 ? 32 : 128)) return false
  new BlockList().addSubnet(address!, Number(prefix), version === 4 ? 'ipv4' : 'ipv6')
  return true
}

/** OpenSSL, which reads the file for the connections, passes over everything else. */
const BEGIN_OF_CERTIFICATE = /-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----/g
const CERTIFICATE = /-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----[^]*?-----END \1-----/g

/** One that can't be read would end what OpenSSL takes of the file, without a word. */
export function caFileFaults(name: string, file: string): string[] {
  let text: string
  try {
    text = readFileSync(file, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return [`${name}: there is no file ${file}`]
    if (code === 'EISDIR') return [`${name}: ${file} is a folder: name a PEM file in it`]
    return [`${name}: ${file} can't be read (${code}): let this user read it, or name another PEM file`]
  }
  const begun = text.match(BEGIN_OF_CERTIFICATE)?.length ?? 0
  const certificates = text.match(CERTIFICATE) ?? []
  if (begun === 0) return [`${name}: ${file} has no certificate: name a PEM file (-----BEGIN CERTIFICATE-----)`]
  if (certificates.length === begun && certificates.every(isCertificate)) return []
  return [`${name}: a certificate of ${file} is damaged: copy the file anew, or name another PEM file`]
}

function isCertificate(pem: string): boolean {
  try {
    return Boolean(new X509Certificate(pem))
  } catch {
    return false
  }
}

/** Of a URL that begins as it must. The value itself is never repeated: it may hold a password. */
export function mysqlUrlFaults(name: string, value: string): string[] {
  const url = new URL(value)
  const { pathname } = url
  return [
    ...(pathname.length > 1 ? [] : [`${name} names no database: end it with /<database>`]),
    ...mysqlTlsFaults(name, url, caFileFaults),
  ]
}

/** Who connects to it decodes these. */
export function isDecodable({ username, password, pathname }: URL): boolean {
  try {
    for (const part of [username, password, pathname]) decodeURIComponent(part)
    return true
  } catch {
    return false
  }
}

export interface NamedPort {
  setting: string
  host: string
  /** 0 and undefined: none that others could have too. */
  port: number | undefined
}

export function equalPortFaults(ports: NamedPort[]): string[] {
  return ports.flatMap((one, n) =>
    ports
      .slice(n + 1)
      .filter((other) => one.port && one.port === other.port && shareAddress(one.host, other.host))
      .map(
        (other) => `${one.setting} and ${other.setting} are both ${one.port}: set one to another (0 takes a free one)`,
      ),
  )
}

function shareAddress(one: string, other: string): boolean {
  const isAll = (host: string) => host === '0.0.0.0' || host === '::'
  return one === other || isAll(one) || isAll(other)
}
