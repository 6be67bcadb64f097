/**
 * A private certificate authority and a certificate for this machine, so that receivers on loopback can be called by
 * https with verification on. Development and tests only.
 */
import { createPrivateKey, randomBytes, webcrypto, X509Certificate } from 'node:crypto'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

export interface DevTls {
  /** Paths of PEM files. */
  caFile: string
  certificateFile: string
  keyFile: string
}

export interface CertificateName {
  type: 'dns' | 'ip'
  value: string
}

const DAY_MS = 86_400_000
const VALID_DAYS = 3650
const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' }

/**
 * The files under `dataDir/dev-tls`, made at the first call and kept. The authority's key is thrown away: nothing else can
 * ever be issued in its name.
 * @param nowMs UTC, milliseconds
 * @param alsoFor further names and addresses of the certificate, where it is issued
 */
export async function makeSureOfDevTls(
  dataDir: string,
  nowMs: number,
  alsoFor: CertificateName[] = [],
): Promise<DevTls> {
  const folder = join(dataDir, 'dev-tls')
  const files = filesIn(folder)
  if (isUsable(files, nowMs)) return files
  mkdirSync(dataDir, { recursive: true })
  // Made aside and renamed: another process sees no folder or a whole one, also when we are killed here.
  const draft = mkdtempSync(`${folder}.new-`)
  try {
    await issue(filesIn(draft), nowMs, alsoFor)
    rmSync(folder, { recursive: true, force: true })
    renameSync(draft, folder)
  } catch (error) {
    rmSync(draft, { recursive: true, force: true })
    // Another process was first: its files serve as well.
    if (!isUsable(files, nowMs)) throw error
  }
  return files
}

function filesIn(folder: string): DevTls {
  return {
    caFile: join(folder, 'ca.pem'),
    certificateFile: join(folder, 'localhost.pem'),
    keyFile: join(folder, 'localhost-key.pem'),
  }
}

/** Whole, belonging together, and good for another month. */
function isUsable({ caFile, certificateFile, keyFile }: DevTls, nowMs: number): boolean {
  if (![caFile, certificateFile, keyFile].every((file) => existsSync(file))) return false
  try {
    const ca = new X509Certificate(readFileSync(caFile))
    const certificate = new X509Certificate(readFileSync(certificateFile))
    return (
      certificate.verify(ca.publicKey) &&
      certificate.checkPrivateKey(createPrivateKey(readFileSync(keyFile))) &&
      // A clock that was set back since may find it too new.
      certificate.validFromDate.getTime() <= nowMs &&
      certificate.validToDate.getTime() > nowMs + 30 * DAY_MS
    )
  } catch {
    return false
  }
}

async function issue(
  { caFile, certificateFile, keyFile }: DevTls,
  nowMs: number,
  alsoFor: CertificateName[],
): Promise<void> {
  const x509 = await loadX509()
  // A day back: the clock of a container or a colleague's machine may be behind.
  const notBefore = new Date(nowMs - DAY_MS)
  const notAfter = new Date(nowMs + VALID_DAYS * DAY_MS)
  const authorityKeys = await webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify'])
  const authority = await x509.X509CertificateGenerator.createSelfSigned({
    name: 'CN=Laboratory Integration Service development CA',
    serialNumber: serialNumber(),
    notBefore,
    notAfter,
    signingAlgorithm: ALGORITHM,
    keys: authorityKeys,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(authorityKeys.publicKey),
    ],
  })
  const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify'])
  const certificate = await x509.X509CertificateGenerator.create({
    subject: 'CN=localhost',
    issuer: authority.subject,
    serialNumber: serialNumber(),
    notBefore,
    notAfter,
    signingAlgorithm: ALGORITHM,
    signingKey: authorityKeys.privateKey,
    publicKey: keys.publicKey,
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
      new x509.SubjectAlternativeNameExtension([
        { type: 'dns', value: 'localhost' },
        { type: 'ip', value: '127.0.0.1' },
        { type: 'ip', value: '::1' },
        ...alsoFor,
      ]),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
      await x509.AuthorityKeyIdentifierExtension.create(authorityKeys.publicKey),
    ],
  })
  const key = await webcrypto.subtle.exportKey('pkcs8', keys.privateKey)
  writeFileSync(caFile, `${authority.toString('pem')}\n`)
  writeFileSync(certificateFile, `${certificate.toString('pem')}\n`)
  writeFileSync(keyFile, x509.PemConverter.encode(key, 'PRIVATE KEY') + '\n', { mode: 0o600 })
}

/** Positive, as RFC 5280 wants it. */
function serialNumber(): string {
  const bytes = randomBytes(16)
  bytes[0] = (bytes[0]! & 0x7f) | 0x40
  return bytes.toString('hex')
}

/**
 * Loaded only when something is to be issued: a second start does not pay for it. Its dependency tsyringe insists on the
 * reflection API of a polyfill that is not installed, and only asks it for metadata that nothing here has.
 */
export async function loadX509() {
  const reflect = Reflect as typeof Reflect & Record<string, unknown>
  reflect.getMetadata ??= () => undefined
  reflect.getOwnMetadata ??= () => undefined
  return import('@peculiar/x509')
}
