/**
 * Integrators hold our answers and events to the contract with validators of their own, which know nothing of ours.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { expect, test } from 'vitest'
import { parse } from 'yaml'
import { createAjv } from '../../src/api.ts'

const CENTS = 100_000
const TOO_FINE = [0.001, 1.005, 0.1 + 0.2, 1e-7, 19.999]

test.each(['client.yaml', 'operator.yaml'])('every amount of %s is one for any validator', (file) => {
  const document = parse(readFileSync(join(import.meta.dirname, '..', '..', 'openapi', file), 'utf8'))
  const amounts = Array.from({ length: CENTS + 1 }, (_, cents) => cents / 100)
  for (const ajv of [new Ajv2020({ strict: false }), createAjv({ strict: false })]) {
    const isMoney = ajv.compile(document.components.schemas.Money)
    expect([...amounts, 9999999999.99].filter((amount) => !isMoney(amount))).toEqual([])
    expect([-0.01, 10_000_000_000, '1'].filter((amount) => isMoney(amount))).toEqual([])
  }
  const isOurs = createAjv({ strict: false }).compile(document.components.schemas.Money)
  expect(TOO_FINE.filter((amount) => isOurs(amount))).toEqual([])
})
