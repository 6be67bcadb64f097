/**
 * Secrets: random ones, their hashes, and encryption at rest. Every key comes from SECRETS_KEY by HKDF with a purpose of
 * its own, so that none can stand in for another.
 */
import {
  createCipheriv,
  createDecipheriv,
  createHash,
  createHmac,
  hash,
  hkdfSync,
  randomBytes,
  timingSafeEqual,
} from 'node:crypto'

export interface Keys {
  /** Signs access tokens (HMAC-SHA256). */
  accessToken: Buffer
  /** Signs what a refresh token says of its family. */
  refreshToken: Buffer
  /** Signs patients' tokens. */
  patientToken: Buffer
  /** Signs links to report files. */
  link: Buffer
  /** Keys the hashes of one-time passwords. */
  otp: Buffer
  /** Keys the hashes of requests that were sent with an `Idempotency-Key`. */
  request: Buffer
  /** Encrypts webhook secrets and stored answers. */
  sealing: Buffer
  /** Names the sealing key in each sealed value, so that a wrong key is told apart from a broken value. */
  sealingKeyId: Buffer
}

export function deriveKeys(secretsKey: Buffer): Keys {
  const derive = (purpose: string) => Buffer.from(hkdfSync('sha256', secretsKey, '', `lis:${purpose}`, 32))
  const sealing = derive('sealing')
  return {
    accessToken: derive('access-token'),
    refreshToken: derive('refresh-token'),
    patientToken: derive('patient-token'),
    link: derive('link'),
    otp: derive('otp'),
    request: derive('request'),
    sealing,
    sealingKeyId: createHash('sha256').update(sealing).digest().subarray(0, 4),
  }
}

/** 256 random bits as base64url. */
export function newSecret(): string {
  return randomBytes(32).toString('base64url')
}

/** For secrets of 256 random bits only: too little work for anything a person chose. */
export function hashSecret(secret: string): Buffer {
  return hash('sha256', secret, 'buffer')
}

/** A guard's key for a value that must not be stored as it is. Not a secret: it only keeps patient data out of a table. */
export function hashValue(value: string): Buffer {
  return hash('sha256', value, 'buffer')
}

export function equalInConstantTime(a: Buffer, b: Buffer): boolean {
  return a.length === b.length && timingSafeEqual(a, b)
}

export function hmacSha256(key: Buffer, data: string | Buffer): Buffer {
  return createHmac('sha256', key).update(data).digest()
}

/**
 * AES-256-GCM: key id (4) | nonce (12) | tag (16) | ciphertext.
 * @param boundTo associated data: what the value belongs to (a webhook's id); a value moved to another row does not open
 */
export function seal(keys: Keys, plaintext: Buffer, boundTo: string): Buffer {
  const nonce = randomBytes(12)
  const cipher = createCipheriv('aes-256-gcm', keys.sealing, nonce)
  cipher.setAAD(Buffer.from(boundTo, 'utf8'))
  const ciphertext = Buffer.concat([cipher.update(plaintext), cipher.final()])
  return Buffer.concat([keys.sealingKeyId, nonce, cipher.getAuthTag(), ciphertext])
}

/** False where the value was sealed under another SECRETS_KEY; true says nothing about whether it is whole. */
export function isSealedUnder(keys: Keys, sealed: Buffer): boolean {
  return sealed.subarray(0, 4).equals(keys.sealingKeyId)
}

/** @throws when the value was sealed under another key, moved to another row, or changed */
export function unseal(keys: Keys, sealed: Buffer, boundTo: string): Buffer {
  if (!isSealedUnder(keys, sealed)) throw new Error('a stored secret was encrypted under another SECRETS_KEY')
  const decipher = createDecipheriv('aes-256-gcm', keys.sealing, sealed.subarray(4, 16))
  decipher.setAAD(Buffer.from(boundTo, 'utf8'))
  decipher.setAuthTag(sealed.subarray(16, 32))
  return Buffer.concat([decipher.update(sealed.subarray(32)), decipher.final()])
}
