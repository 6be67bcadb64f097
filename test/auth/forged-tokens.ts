/**
 * Tokens that must not be believed, each with one thing wrong (RFC 8725, RFC 7515): what a forger can send, and what would be
 * wrong even if our own key had signed it. One list for both kinds of token that this service signs.
 */
import { createHmac, generateKeyPairSync, sign as signWith, type KeyObject } from 'node:crypto'
import { newId } from '../../src/ids.ts'

export interface TokenKind {
  /** A sound one. */
  token: string
  /** Its own signing key. */
  key: Buffer
  typ: string
  audience: string
  /** Of the other kind of token. */
  otherTyp: string
  otherAudience: string
  /** Keys of the same service that are for something else, by name. */
  otherKeys: Record<string, Buffer>
  /** How far in the past `exp` may be. */
  skewSeconds: number
  nowSeconds: number
}

type Json = Record<string, unknown>
export type Forgery = [what: string, token: string]

const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
/** The same bytes in other letters: of the last one only four bits count. */
function withOtherSpareBits(signature: string): string {
  const bytes = Buffer.from(signature, 'base64url')
  const letters = [...'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_']
  const others = letters.map((letter) => signature.slice(0, -1) + letter)
  return others.find((other) => other !== signature && Buffer.from(other, 'base64url').equals(bytes))!
}
const raw = (text: string) => Buffer.from(text).toString('base64url')

export class Forger {
  readonly kind: TokenKind
  readonly claims: Json
  readonly header: Json
  readonly #parts: [header: string, payload: string, signature: string]

  constructor(kind: TokenKind) {
    this.kind = kind
    this.#parts = kind.token.split('.') as [string, string, string]
    this.claims = JSON.parse(Buffer.from(this.#parts[1], 'base64url').toString())
    this.header = { alg: 'HS256', typ: kind.typ }
  }

  /** By our own key, unless another is given. */
  sign(header: unknown, claims: unknown, key: Buffer = this.kind.key, hash = 'sha256'): string {
    return this.#seal(`${encode(header)}.${encode(claims)}`, key, hash)
  }

  /** With claims added to the sound ones, signed by our own key. */
  with(claims: Json): string {
    return this.sign(this.header, { ...this.claims, ...claims })
  }

  without(claim: string): string {
    return this.sign(this.header, Object.fromEntries(Object.entries(this.claims).filter(([name]) => name !== claim)))
  }

  /** Every forgery of this kind of token. */
  all(): Forgery[] {
    return [...this.#torn(), ...this.#algorithms(), ...this.#keys(), ...this.#headers(), ...this.#claims()]
  }

  #seal(input: string, key: Buffer, hash = 'sha256'): string {
    return `${input}.${createHmac(hash, key).update(input).digest('base64url')}`
  }

  #torn(): Forgery[] {
    const [header, payload, signature] = this.#parts
    const flipped = signature[0] === 'A' ? `B${signature.slice(1)}` : `A${signature.slice(1)}`
    return [
      ['an empty signature', `${header}.${payload}.`],
      ['no signature', `${header}.${payload}`],
      ['a cut signature', `${header}.${payload}.${signature.slice(0, -4)}`],
      ['a signature of one byte', `${header}.${payload}.AA`],
      ['another signature', `${header}.${payload}.${flipped}`],
      ['a longer signature', `${header}.${payload}.${signature}AAAA`],
      ['a padded signature', `${header}.${payload}.${signature}=`],
      ['other spare bits in the last letter', `${header}.${payload}.${withOtherSpareBits(signature)}`],
      ['a blank in the signature', `${header}.${payload}.${signature.slice(0, 9)} ${signature.slice(9)}`],
      ['a slash in the signature', `${header}.${payload}.${signature.slice(0, 9)}/${signature.slice(9)}`],
      ['the signature twice', `${header}.${payload}.${signature}.${signature}`],
      ['other claims under the signature', `${header}.${encode({ ...this.claims, sub: newId(0) })}.${signature}`],
      ['a longer life under the signature', `${header}.${encode({ ...this.claims, exp: 9_999_999_999 })}.${signature}`],
      ['another header over the signature', `${encode({ ...this.header, kid: '1' })}.${payload}.${signature}`],
      ['five parts, as if encrypted', `${encode({ alg: 'dir', enc: 'A256GCM' })}..${payload}.${payload}.${signature}`],
      ['its parts as JSON', JSON.stringify({ protected: header, payload, signature })],
      ['three empty parts', '..'],
      ['null for a token', 'null'],
      ['100 KB of one letter', 'x'.repeat(100_000)],
      ['100 KB of claims', this.with({ padding: 'x'.repeat(75_000) })],
      ['10,000 dots', '.'.repeat(10_000)],
    ]
  }

  #algorithms(): Forgery[] {
    const [, payload, signature] = this.#parts
    const none = ['none', 'None', 'NONE', 'nOnE', '', null, undefined, ['HS256'], 0] // prettier-ignore
    const { header, claims } = this
    const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 })
    const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' })
    const ed = generateKeyPairSync('ed25519')
    const signed = (alg: string, key: KeyObject, hash: string | null, extra: Json = {}) => {
      const input = `${encode({ ...header, ...extra, alg })}.${payload}`
      const bytes = signWith(hash, Buffer.from(input), { key, dsaEncoding: 'ieee-p1363' })
      return `${input}.${bytes.toString('base64url')}`
    }
    const publicPem = Buffer.from(rsa.publicKey.export({ type: 'spki', format: 'pem' }))
    return [
      ...none.map((alg): Forgery => [`alg ${JSON.stringify(alg)}, unsigned`, `${encode({ ...header, alg })}.${payload}.`]),
      ['alg none with a signature', `${encode({ ...header, alg: 'none' })}.${payload}.${signature}`],
      ['HS384', this.sign({ ...header, alg: 'HS384' }, claims, this.kind.key, 'sha384')],
      ['HS512', this.sign({ ...header, alg: 'HS512' }, claims, this.kind.key, 'sha512')],
      ['HS1', this.sign({ ...header, alg: 'HS1' }, claims, this.kind.key, 'sha1')],
      ['HS256 in lower case', this.sign({ ...header, alg: 'hs256' }, claims)],
      ['a signature of HS256 under RS256', this.sign({ ...header, alg: 'RS256' }, claims)],
      ["RS256 with the forger's key", signed('RS256', rsa.privateKey, 'sha256')],
      ["ES256 with the forger's key", signed('ES256', ec.privateKey, 'sha256')],
      ["EdDSA with the forger's key", signed('EdDSA', ed.privateKey, null)],
      ['HS256 with a public key for a secret', this.sign(header, claims, publicPem)],
      ['RS256 with its key in the header', signed('RS256', rsa.privateKey, 'sha256', { jwk: rsa.publicKey.export({ format: 'jwk' }) })],
      ['ES256 with its certificate in the header', signed('ES256', ec.privateKey, 'sha256', { x5c: [publicPem.toString('base64')] })],
    ] // prettier-ignore
  }

  #keys(): Forgery[] {
    const { header, claims } = this
    return [
      ['an empty key', this.sign(header, claims, Buffer.alloc(0))],
      ['a key of zeros', this.sign(header, claims, Buffer.alloc(32))],
      ['the word secret for a key', this.sign(header, claims, Buffer.from('secret'))],
      ...Object.entries(this.kind.otherKeys).map(([name, key]): Forgery => [
        `the key of ${name}`,
        this.sign(header, claims, key),
      ]),
    ]
  }

  #headers(): Forgery[] {
    const { header, claims } = this
    const zeros = Buffer.alloc(32)
    const oct = { kty: 'oct', k: zeros.toString('base64url') }
    const elsewhere = 'https://attacker.example/keys'
    return [
      ...[undefined, null, '', 'JWT', 'rt+jwt', 'at+JWT+x', this.kind.otherTyp].map(
        (typ): Forgery => [`typ ${JSON.stringify(typ)}`, this.sign({ ...header, typ }, claims)],
      ),
      ...['../../../dev/null', "' UNION SELECT ''--", '0', '', 'none', '/proc/self/environ'].map(
        (kid): Forgery => [`kid ${JSON.stringify(kid)} and an empty key`, this.sign({ ...header, kid }, claims, Buffer.alloc(0))],
      ),
      ['jwk', this.sign({ ...header, jwk: oct }, claims, zeros)],
      ...Object.entries({ kid: '1', jwk: oct, jku: elsewhere, cty: 'JWT' }).map(
        ([member, value]): Forgery => [`${member} under the right key`, this.sign({ ...header, [member]: value }, claims)],
      ),
      ['jku', this.sign({ ...header, jku: elsewhere }, claims, zeros)],
      ['x5u', this.sign({ ...header, x5u: elsewhere }, claims, zeros)],
      ['x5c', this.sign({ ...header, x5c: ['AAAA'] }, claims, zeros)],
      ['crit of what is known', this.sign({ ...header, crit: ['exp'] }, claims)],
      ['crit of what is unknown', this.sign({ ...header, crit: ['lis'], lis: 1 }, claims)],
      ['crit that is empty', this.sign({ ...header, crit: [] }, claims)],
      ['an unencoded payload', this.sign({ ...header, crit: ['b64'], b64: false }, claims)],
      ['a header that is no JSON', this.#seal(`${raw('{alg:HS256}')}.${this.#parts[1]}`, this.kind.key)],
      ['a header that is a list', this.#seal(`${encode([header])}.${this.#parts[1]}`, this.kind.key)],
      ['a header with __proto__', this.#seal(`${raw(`{"__proto__":${JSON.stringify(header)}}`)}.${this.#parts[1]}`, this.kind.key)],
    ] // prettier-ignore
  }

  #claims(): Forgery[] {
    const { kind, claims } = this
    const { nowSeconds, skewSeconds } = kind
    const twice = (name: string, value: unknown) =>
      this.#seal(`${encode(this.header)}.${raw(`${JSON.stringify(claims).slice(0, -1)},"${name}":${JSON.stringify(value)}}`)}`, kind.key) // prettier-ignore
    const payload = (text: string) => this.#seal(`${encode(this.header)}.${raw(text)}`, kind.key)
    return [
      ...Object.keys(claims).map((claim): Forgery => [`no ${claim}`, this.without(claim)]),
      ['another issuer', this.with({ iss: 'someone' })],
      ['a list of issuers', this.with({ iss: [claims.iss, 'someone'] })],
      ['another audience', this.with({ aud: 'someone' })],
      ['the audience of the other kind', this.with({ aud: kind.otherAudience })],
      ['an empty list of audiences', this.with({ aud: [] })],
      ['an audience cut short', this.with({ aud: kind.audience.slice(0, -1) })],
      ['exp past, with the skew', this.with({ exp: nowSeconds - skewSeconds })],
      ['exp long past', this.with({ exp: 1 })],
      ['exp negative', this.with({ exp: -9_999_999_999 })],
      ['exp as text', this.with({ exp: '9999999999' })],
      ['exp null', this.with({ exp: null })],
      ['exp as a list', this.with({ exp: [9_999_999_999] })],
      ['nbf in an hour', this.with({ nbf: nowSeconds + 3600 })],
      ['nbf as text', this.with({ nbf: '0' })],
      ['a subject that nobody is', this.with({ sub: newId(0) })],
      ['a subject in upper case', this.with({ sub: String(claims.sub).toUpperCase() })],
      ['a subject with a blank', this.with({ sub: `${claims.sub} ` })],
      ['a subject that is a list', this.with({ sub: [claims.sub] })],
      ['a subject that is an operator', this.with({ sub: { $ne: '' } })],
      ['a subject of SQL', this.with({ sub: "' OR '1'='1" })],
      ['a subject of U+0000', this.with({ sub: `${claims.sub}\0` })],
      ['an empty subject', this.with({ sub: '' })],
      ['a second subject', twice('sub', newId(0))],
      ['a second exp', twice('exp', 1)],
      ['a second audience', twice('aud', 'someone')],
      ['claims that are a list', payload(`[${JSON.stringify(claims)}]`)],
      ['claims that are null', payload('null')],
      ['claims that are no JSON', payload('{sub:1}')],
      ['claims behind __proto__', payload(`{"__proto__":${JSON.stringify(claims)}}`)],
      ['claims that are nothing', payload('')],
    ]
  }
}
