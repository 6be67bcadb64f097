/**
 * The alerts and the board of `scripts/monitoring` against what both processes really show, against Prometheus' own checker,
 * and one of them against the fault that it is there for.
 */
import type { ChildProcess } from 'node:child_process'
import { execFileSync, spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { parse } from 'yaml'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { routeEvents } from '../../src/events/event-routing.ts'
import { registerBacklog } from '../../src/metrics-database.ts'
import { createMetrics } from '../../src/metrics.ts'
import { startApiProcess, type ApiProcess } from '../support/api-process.ts'
import { operator } from '../support/app.ts'
import { daemonProcesses, type DaemonProcesses } from '../support/daemon-process.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld, SECRETS_KEY } from '../support/delivery-world.ts'
import { freePort } from '../support/free-port.ts'
import { scrape } from '../support/scrape.ts'
import { createTestTls } from '../support/tls.ts'

/** Real processes are started, on machines that may do other things. */
vi.setConfig({ testTimeout: 90_000, hookTimeout: 90_000 })

const FOLDER = join(import.meta.dirname, '..', '..', 'scripts', 'monitoring')
const text = (name: string) => readFileSync(join(FOLDER, name), 'utf8')

interface Rule {
  alert: string
  expr: string
  for?: string
  labels: { severity: string }
  annotations: { summary: string; runbook: string }
}
const rules: Rule[] = parse(text('alerts.yaml')).groups.flatMap((group: { rules: Rule[] }) => group.rules)
const ruleNamed = (name: string) => rules.find(({ alert }) => alert === name)!

const board: { panels: { title: string; targets?: { expr: string }[] }[] } = JSON.parse(text('dashboard.json'))

let db: TestDatabase
let world: DeliveryWorld
let tls: Awaited<ReturnType<typeof createTestTls>>
let receiver: HttpsReceiver
let api: ApiProcess
let daemons: DaemonProcesses
let daemon: ChildProcess
let ports: { api: number; daemon: number }

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  receiver = await startHttpsReceiver(tls)
  ports = { api: await freePort(), daemon: await freePort() }
  daemons = daemonProcesses(db.mysqlUrl, tls.caFile)
  ;[api, daemon] = await Promise.all([
    startApiProcess({
      mysqlUrl: db.mysqlUrl,
      dataDir: '/nonexistent',
      secretsKey: SECRETS_KEY.toString('base64'),
      env: { METRICS_PORT: String(ports.api) },
    }),
    daemons.start({ DAEMON_PORT: String(ports.daemon) }),
  ])
  await world.webhook({ endpoint: receiver.url })
})
afterAll(async () => {
  daemons.close()
  await api.kill()
  await world.close()
  await receiver.close()
  await db.close()
  tls.remove()
})

/** `lis_x_total{class!="ok"}` and the like, out of an expression. */
function selectorsOf(
  expression: string,
): { name: string; labels: { name: string; operator: string; value: string }[] }[] {
  const words = expression.matchAll(/\b((?:lis|nodejs|process)_[a-z0-9_]+|up)\b(?:\{([^}]*)\})?/g)
  return [...words].map(([, name, labels]) => ({
    name: name!,
    labels: [...(labels ?? '').matchAll(/([a-z_]+)(=~|!=|!~|=)"([^"]*)"/g)].map(([, label, operator, value]) => ({
      name: label!,
      operator: operator!,
      value: value!,
    })),
  }))
}

/** Given by Prometheus to whatever it scrapes. */
const LABELS_OF_SCRAPES = ['job', 'instance']

describe('what the alerts and the board ask for', () => {
  let samples: string[]
  beforeAll(async () => {
    await fetch(`${api.baseUrl}/client/labs`)
    await world.event()
    await receiver.arrived(1, 30_000)
    samples = await vi.waitFor(async () => {
      const [ofApi, ofDaemon] = await Promise.all([scrape(ports.api), scrape(ports.daemon)])
      expect(ofDaemon.get('lis_delivery_attempts_total{class="ok"}')).toBe(1)
      expect(ofApi.get('lis_http_requests_total{operation="listLabs",status="401"}')).toBe(1)
      return [...ofApi.keys(), ...ofDaemon.keys()]
    }, 30_000)
  })

  test.each([
    ...rules.map(({ alert, expr }) => [alert, expr]),
    ...board.panels.flatMap(({ title, targets = [] }) => targets.map(({ expr }) => [`panel ${title}`, expr])),
  ])('%s: is there, with its labels', (_, expression) => {
    const selectors = selectorsOf(expression!)
    expect(selectors).not.toEqual([])
    for (const { name, labels } of selectors) {
      if (name === 'up') continue
      const shown = samples.filter((sample) => sample === name || sample.startsWith(`${name}{`))
      expect([name, shown.length > 0]).toEqual([name, true])
      for (const label of labels.filter((each) => !LABELS_OF_SCRAPES.includes(each.name))) {
        const wanted = label.operator === '=' ? `${label.name}="${label.value}"` : `${label.name}="`
        expect([name, wanted, shown.some((sample) => sample.includes(wanted))]).toEqual([name, wanted, true])
      }
    }
    // What a group is made by is a label of what is grouped.
    for (const [, group] of expression!.matchAll(/\bby \(([^)]*)\)/g)) {
      for (const label of group!.split(',').map((each) => each.trim())) {
        if (LABELS_OF_SCRAPES.includes(label)) continue
        expect([label, samples.some((sample) => sample.includes(`${label}="`))]).toEqual([label, true])
      }
    }
  })

  test('every metric of ours stands on the board or in an alert', () => {
    const asked = JSON.stringify([rules, board])
    const names = new Set(
      samples
        .filter((sample) => sample.startsWith('lis_'))
        .map((sample) => sample.replace(/(_bucket|_sum|_count)?(\{.*)?$/, '')),
    )
    expect(names.size).toBeGreaterThan(15)
    for (const name of names) expect([name, asked.includes(name)]).toEqual([name, true])
  })
})

describe('every alert', () => {
  test.each(rules)('$alert has a severity, a summary and a runbook whose commands exist', (rule) => {
    expect(['page', 'ticket']).toContain(rule.labels.severity)
    expect(rule.annotations.summary).not.toBe('')
    expect(rule.annotations.runbook.length).toBeGreaterThan(40)
    const makefile = readFileSync(join(FOLDER, '..', '..', 'Makefile'), 'utf8')
    for (const [, target] of rule.annotations.runbook.matchAll(/`make ([a-z-]+)/g))
      expect(makefile).toContain(`\n${target}: `)
    for (const [, command] of rule.annotations.runbook.matchAll(/ARGS="([a-z-]+)/g)) {
      const operationId = command!.replace(/-([a-z])/g, (__, letter: string) => letter.toUpperCase())
      expect(operator.operations.map((known) => known.operationId)).toContain(operationId)
    }
    for (const [name] of rule.annotations.runbook.matchAll(/\bLis[A-Za-z]+/g)) expect(ruleNamed(name)).toBeDefined()
  })

  test('has a case in which it fires', () => {
    const cases = text('alerts.test.yaml')
    for (const { alert } of rules)
      expect(cases).toContain(`exp_samples: [{ labels: '{alertname="${alert}"}', value: 1 }]`)
  })
})

const promtool = spawnSync('test/servers/promtool.sh', { encoding: 'utf8' })
const WITHOUT_PROMTOOL = `skipped: no promtool: ${promtool.stderr?.trim().split('\n').at(-1)}`
if (promtool.status !== 0) console.log(WITHOUT_PROMTOOL)

describe.skipIf(promtool.status !== 0)(`promtool ${promtool.status === 0 ? '' : `(${WITHOUT_PROMTOOL})`}`, () => {
  const run = (...args: string[]) => execFileSync(promtool.stdout.trim(), args, { cwd: FOLDER, encoding: 'utf8' })

  test('takes the rules and the configuration', () => {
    expect(run('check', 'rules', 'alerts.yaml')).toContain(`SUCCESS: ${rules.length} rules found`)
    expect(run('check', 'config', 'prometheus.yaml')).toContain('SUCCESS')
  })

  test('sees each alert fire at its fault, not before, and none where all is well', () => {
    expect(run('test', 'rules', 'alerts.test.yaml')).toContain('SUCCESS')
  })
})

describe('while the loop that claims stands still', () => {
  /** `max(metric{labels}) > number` of an alert, and the metric as it will be read by then. */
  async function comparison(alert: string, aheadSeconds: number): Promise<{ value: number; threshold: number }> {
    const [, sample, threshold] = /^max\((.+)\) > (\d+)$/.exec(ruleNamed(alert).expr)!
    const metrics = createMetrics(false)
    const now = () => new Date(world.clock.nowMs() + aheadSeconds * 1000)
    registerBacklog(metrics, db.database, { now, nowMs: () => now().getTime() })
    const line = (await metrics.read()).text.split('\n').find((each) => each.startsWith(`${sample} `))
    return { value: Number(line!.split(' ')[1]), threshold: Number(threshold) }
  }

  /** Up to 5 s a reading is kept, and 10 s each pass from scrape to scrape and from one evaluation to the next. */
  const SEEN_AFTER_SECONDS = 25

  test('what is due is told within a minute, as is what nobody fans out; and no more when it goes on', async () => {
    for (const alert of ['LisDeliveriesStuck', 'LisEventsUnrouted']) expect(ruleNamed(alert).for).toBeUndefined()
    const before = receiver.requests.length
    daemon.kill('SIGSTOP')
    await world.event()
    for (const alert of ['LisEventsUnrouted', 'LisDeliveriesStuck']) {
      // The second time round it has been fanned out, and waits for its lane to be claimed.
      if (alert === 'LisDeliveriesStuck') await routeEvents(db.database.batch, world.clock.now(), 100)
      const atOnce = await comparison(alert, 0)
      expect(atOnce.value).toBeLessThan(atOnce.threshold)
      const inTime = await comparison(alert, 60 - SEEN_AFTER_SECONDS)
      expect(inTime.value).toBeGreaterThan(inTime.threshold)
    }
    daemon.kill('SIGCONT')
    await receiver.arrived(before + 1, 60_000)
    await world.settled(60_000)
    expect((await comparison('LisDeliveriesStuck', 60)).value).toBe(0)
  })
})
