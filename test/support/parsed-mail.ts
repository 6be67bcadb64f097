/**
 * A mail as a mail program takes it apart (RFC 5322, 2045, 2046): its head, and its parts decoded.
 */
export interface MailPart {
  headers: [name: string, value: string][]
  /** Decoded. */
  text: string
}

export interface ParsedMail {
  headers: [name: string, value: string][]
  parts: MailPart[]
}

/** @param bytes as they came over the wire. @throws for what is not the multipart that we send */
export function parseMail(bytes: Buffer): ParsedMail {
  const { headers, body } = splitHead(bytes.toString('utf8'))
  const boundary = /^multipart\/alternative; *boundary="([^"]+)"$/i.exec(valueOf(headers, 'Content-Type'))?.[1]
  if (!boundary) throw new Error(`not a multipart: ${valueOf(headers, 'Content-Type')}`)
  const [, ...rest] = body.split(`--${boundary}`)
  if (!rest.at(-1)?.startsWith('--')) throw new Error('the last boundary is missing')
  return { headers, parts: rest.slice(0, -1).map((part) => toPart(part.replace(/^\r\n/, ''))) }
}

function toPart(raw: string): MailPart {
  const { headers, body } = splitHead(raw)
  return { headers, text: decoded(body.replace(/\r\n$/, ''), valueOf(headers, 'Content-Transfer-Encoding')) }
}

function splitHead(raw: string): { headers: [string, string][]; body: string } {
  const end = raw.indexOf('\r\n\r\n')
  if (end < 0) throw new Error('there is no end of the head')
  const unfolded = raw.slice(0, end).replace(/\r\n[ \t]+/g, ' ')
  const lines = unfolded.split('\r\n')
  const headers = lines.map((line): [string, string] => {
    const match = /^([!-9;-~]+): (.*)$/.exec(line)
    if (!match) throw new Error(`no header: ${JSON.stringify(line)}`)
    return [match[1]!, match[2]!]
  })
  return { headers, body: raw.slice(end + 4) }
}

function valueOf(headers: [string, string][], wanted: string): string {
  return headers.find(([name]) => name.toLowerCase() === wanted.toLowerCase())?.[1] ?? ''
}

function decoded(text: string, encoding: string): string {
  if (encoding === 'base64') return Buffer.from(text, 'base64').toString('utf8')
  if (encoding !== 'quoted-printable') return text
  const bytes = text
    .replace(/=[ \t]*\r\n/g, '')
    .replace(/=([0-9A-F]{2})/g, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)))
  return Buffer.from(bytes, 'latin1').toString('utf8')
}

/** Words of a header that are encoded (RFC 2047), in clear. */
export function decodeWords(value: string): string {
  return value
    .replace(/\?= +=\?/g, '?==?')
    .replace(/=\?UTF-8\?([BQ])\?([^?]*)\?=/gi, (_, kind: string, text: string) =>
      kind.toUpperCase() === 'B'
        ? Buffer.from(text, 'base64').toString('utf8')
        : decoded(text.replaceAll('_', ' '), 'quoted-printable'),
    )
}
