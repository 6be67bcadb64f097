import { formatSecret, type HmacKey } from '../../src/deliveries/signature.ts'

/** The secret that a prepared key of 32 bytes was made from, as its integrator was shown it. */
export function secretOfKey({ inner }: HmacKey): string {
  return formatSecret(Buffer.from(inner.subarray(0, 32).map((byte) => byte ^ 0x36)))
}
