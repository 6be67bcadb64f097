/**
 * Memory of its own for what is kept. Node cuts small Buffers from common pieces of 64 KB, and each of those stays as long as anything
 * that was cut from it: a few hundred bytes, kept, take 64 KB.
 */

export function ownBytes(text: string, encoding: BufferEncoding = 'utf8'): Buffer {
  const own = Buffer.allocUnsafeSlow(Buffer.byteLength(text, encoding))
  own.write(text, encoding)
  return own
}

/** The same bytes. */
export function ownCopy(bytes: Uint8Array): Buffer {
  const own = Buffer.allocUnsafeSlow(bytes.length)
  own.set(bytes)
  return own
}
