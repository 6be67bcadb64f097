import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { isSound, judge, readEvidence, summary } from '../../scripts/crash/ledger-check.ts'
import { Ledger } from '../../scripts/crash/ledger.ts'

let ledger: Ledger
let received = 0

beforeEach(() => {
  ledger = new Ledger(mkdtempSync(join(tmpdir(), 'lis-ledger-')))
  received = 0
  ledger.append('webhooks', { webhook: 'w1', lab: 'lab' })
})
afterEach(() => {
  ledger.close()
  rmSync(ledger.folder, { recursive: true, force: true })
})

const acknowledged = (lead: string) =>
  ledger.append('client', { request: lead, account: 'a', pid: 1, sentAtMs: 0, endedAtMs: 5, status: 200, leadId: lead })
const committed = (lead: string) => ledger.append('events', { event: `event-of-${lead}`, lead, lab: 'lab' })
const killed = (what: 'api' | 'daemon', atMs: number, how: 'kill' | 'stop' = 'kill') =>
  ledger.append('killer', { what, how, pid: 2, point: 'a kill', atMs, untilMs: atMs })

function receive(lead: string, atMs: number, answer: { status: number; atMs: number } | undefined): void {
  const n = ++received
  ledger.append('receiver', { kind: 'received', n, webhook: 'w1', event: `event-of-${lead}`, atMs })
  if (answer) ledger.append('receiver', { kind: 'answered', n, ...answer })
}

const verdict = () => judge(readEvidence(ledger.folder))

test('what was acknowledged, committed and answered with a 2xx is sound', () => {
  acknowledged('one')
  committed('one')
  receive('one', 10, { status: 204, atMs: 11 })
  expect(summary(verdict())).toBe('lost=0 phantom=0 duplicates explained=0 unexplained=0')
  expect(verdict().delivered).toBe(1)
})

test('an acknowledged lead without an event is lost, and so is an event that no 2xx has answered', () => {
  acknowledged('one')
  committed('two')
  receive('two', 10, { status: 500, atMs: 11 })
  receive('two', 20, undefined)
  expect(summary(verdict())).toMatch(/^lost=2 phantom=0 /)
  expect(isSound(verdict())).toBe(false)
})

test('what came and was never committed is a phantom', () => {
  receive('one', 10, { status: 204, atMs: 11 })
  expect(summary(verdict())).toMatch(/^lost=0 phantom=1 /)
})

test('a second 2xx is explained by a kill of a daemon soon after the first, and by nothing else', () => {
  for (const lead of ['soon', 'later', 'never']) committed(lead)
  receive('soon', 10_000, { status: 204, atMs: 10_005 })
  killed('daemon', 10_010)
  receive('soon', 16_000, { status: 204, atMs: 16_001 })
  // Twelve seconds before a kill, or with no kill but that of an API and an orderly stop.
  receive('later', 40_000, { status: 204, atMs: 40_005 })
  killed('daemon', 52_000)
  receive('later', 53_000, { status: 204, atMs: 53_005 })
  receive('never', 80_000, { status: 204, atMs: 80_005 })
  killed('api', 80_010)
  killed('daemon', 80_020, 'stop')
  receive('never', 81_000, { status: 204, atMs: 81_005 })
  expect(summary(verdict())).toBe('lost=0 phantom=0 duplicates explained=1 unexplained=2')
  expect(Math.round(verdict().slowestRetryMs)).toBe(5990)
})

test('what a kill left unrecorded is sent again within 15 s, and is late after that', () => {
  for (const lead of ['in time', 'late']) committed(lead)
  receive('in time', 9000, undefined)
  receive('late', 9001, undefined)
  killed('daemon', 10_000)
  receive('in time', 25_000, { status: 204, atMs: 25_001 })
  receive('late', 25_001, { status: 204, atMs: 25_002 })
  expect(verdict().late).toEqual(['w1 event-of-late after 15001 ms'])
  // Nothing else is wrong with it.
  expect(isSound(verdict())).toBe(true)
})

test('of an endpoint that fails the third waits for one of two to be answered; with room for it, it is late', () => {
  const leads = ['first', 'second', 'third', 'fourth']
  for (const lead of leads) committed(lead)
  for (const lead of leads) receive(lead, 9000, undefined)
  killed('daemon', 10_000)
  receive('first', 15_500, { status: 204, atMs: 24_500 })
  receive('second', 15_600, { status: 204, atMs: 24_600 })
  // There was room for 5.6 s before them, and since the first of them was answered.
  receive('third', 33_000, { status: 204, atMs: 42_000 })
  receive('fourth', 33_500, { status: 204, atMs: 42_000 })
  expect(verdict().late).toEqual([])
  expect(Math.round(verdict().slowestRetryMs)).toBe(23_500)
  killed('daemon', 50_000)
  receive('first', 50_100, { status: 204, atMs: 50_200 })
  receive('fourth', 66_000, { status: 204, atMs: 66_001 })
  expect(verdict().late).toEqual(['w1 event-of-fourth after 16000 ms'])
})

test('a kill explains what was sent before it and read a moment after it, and nothing that was read later', () => {
  for (const lead of ['moment', 'later']) committed(lead)
  killed('daemon', 10_000)
  receive('moment', 10_001, { status: 204, atMs: 10_002 })
  receive('moment', 16_000, { status: 204, atMs: 16_001 })
  receive('later', 10_600, { status: 204, atMs: 10_601 })
  receive('later', 16_000, { status: 204, atMs: 16_001 })
  expect(summary(verdict())).toBe('lost=0 phantom=0 duplicates explained=1 unexplained=1')
  expect(verdict().inFlight).toBe(1)
})

test('a second 2xx is explained where its sender had given the first up before it was answered', () => {
  for (const lead of ['waited', 'given-up']) committed(lead)
  for (const lead of ['waited', 'given-up']) {
    receive(lead, 30_000, { status: 204, atMs: 30_005 })
    receive(lead, 35_100, { status: 204, atMs: 35_105 })
  }
  const isGivenUp = ({ event }: { event: string }) => event === 'event-of-given-up'
  const { explained, givenUp, unexplained } = judge({ ...readEvidence(ledger.folder), isGivenUp })
  expect([explained, givenUp, unexplained]).toEqual([1, 1, ['w1 event-of-waited']])
})

test('a 2xx that came after ten seconds counts as a failure, and the next one is no duplicate without a reason', () => {
  committed('one')
  receive('one', 1000, { status: 204, atMs: 11_500 })
  receive('one', 16_000, { status: 204, atMs: 16_001 })
  expect(summary(verdict())).toBe('lost=0 phantom=0 duplicates explained=1 unexplained=0')
})
