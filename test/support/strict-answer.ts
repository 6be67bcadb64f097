/**
 * Where a well-formed answer ends, by the grammar of RFC 9112 written down as expressions: what the parser that delivery uses is
 * compared with, and written without a look at it.
 */
const NAME = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
const TEXT = '[\\t\\x20-\\x7e\\x80-\\xff]*'
const HEADERS = `(?:${NAME}:${TEXT}\\r\\n)*`
const INFORMATIONAL = new RegExp(`HTTP/1\\.[01] 1(?!01)\\d\\d(?: ${TEXT})?\\r\\n${HEADERS}\\r\\n`, 'y')
const FINAL = new RegExp(`HTTP/1\\.([01]) ([2-9]\\d\\d)(?: ${TEXT})?\\r\\n(${HEADERS})\\r\\n`, 'y')
const CHUNK_SIZE = new RegExp(`([0-9A-Fa-f]+)(?:;${TEXT})?\\r\\n`, 'y')
const TRAILERS = new RegExp(`${HEADERS}\\r\\n`, 'y')

function valuesOf(headers: string, name: string): string[] {
  const lines = headers.split('\r\n').filter((line) => line.toLowerCase().startsWith(`${name}:`))
  return lines.map((line) => line.slice(name.length + 1).replace(/^[\t ]+|[\t ]+$/g, ''))
}

function match(expression: RegExp, text: string, at: number): RegExpExecArray | null {
  expression.lastIndex = at
  return expression.exec(text)
}

function endOfChunks(text: string, from: number): number | undefined {
  for (let at = from; ;) {
    const line = match(CHUNK_SIZE, text, at)
    if (!line) return undefined
    at += line[0].length
    const size = Number.parseInt(line[1]!, 16)
    if (size === 0) {
      const trailers = match(TRAILERS, text, at)
      return trailers ? at + trailers[0].length : undefined
    }
    if (text.slice(at + size, at + size + 2) !== '\r\n') return undefined
    at += size + 2
  }
}

/** @returns undefined when it has no certain end, or does not leave its connection open */
export function endOfStrictAnswer(text: string): number | undefined {
  let at = 0
  for (let head = match(INFORMATIONAL, text, at); head; head = match(INFORMATIONAL, text, at)) at += head[0].length
  const head = match(FINAL, text, at)
  if (!head) return undefined
  at += head[0].length
  const [, version, status, headers] = head as unknown as [string, string, string, string]
  const options = valuesOf(headers, 'connection').join().toLowerCase().split(',').map((option) => option.trim()) // prettier-ignore
  if (options.includes('close') || (version === '0' && !options.includes('keep-alive'))) return undefined
  const lengths = valuesOf(headers, 'content-length')
  const codings = valuesOf(headers, 'transfer-encoding')
  if (status === '204' || status === '304')
    return codings.length === 0 && Number(lengths[0] ?? 0) === 0 ? at : undefined
  if (codings.length > 0) {
    return lengths.length === 0 && codings.join().toLowerCase() === 'chunked' ? endOfChunks(text, at) : undefined
  }
  if (lengths.length !== 1 || !/^\d+$/.test(lengths[0]!)) return undefined
  return at + Number(lengths[0])
}
