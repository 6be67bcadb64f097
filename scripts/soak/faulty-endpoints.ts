/**
 * How the faulty ones among the endpoints of a soak behave, until they are made well; and endpoints that do whatever an endpoint
 * should not.
 */
import { KINDS, startHostileEndpoint, type HostileEndpoint } from '../bench/hostile-endpoints.ts'
import type { CrashArena } from '../crash/crash-arena.ts'
import { pause } from '../crash/crash-stage.ts'
import type { Behaviour, HookedReceiver } from '../crash/hooked-receiver.ts'
import type { DevTls } from '../dev-tls.ts'
import { EVENTS, type Fault, type SoakAccount, type SoakWebhook } from './soak-accounts.ts'

const SLOW_MS = 2500

/** @returns makes them all well; whoever hangs is answered at once */
export function makeFaulty(receiver: HookedReceiver, webhooks: SoakWebhook[]): () => void {
  let heal = () => {}
  const healed = new Promise<void>((resolve) => (heal = resolve))
  const answers: Record<Fault, () => Behaviour | Promise<Behaviour>> = {
    hang: () => healed.then(() => 204),
    '500': () => 500,
    reset: () => 'reset',
    slow: () => pause(SLOW_MS).then(() => 204),
  }
  for (const { id, fault } of webhooks) if (fault) receiver.behaviours.set(id, answers[fault])
  return () => {
    for (const { id, fault } of webhooks) if (fault) receiver.behaviours.delete(id)
    heal()
  }
}

export interface Hostile {
  endpoints: HostileEndpoint[]
  /** Webhooks, with whom they belong to. */
  webhooks: { id: string; account: SoakAccount }[]
}

/** One of each kind, as a further webhook of an account. */
export async function addHostile(arena: CrashArena, tls: DevTls, accounts: SoakAccount[]): Promise<Hostile> {
  // Those of faulty names need a name server.
  const kinds = Object.keys(KINDS).filter((kind) => KINDS[kind]!.name === undefined)
  const endpoints = await Promise.all(kinds.map((kind) => startHostileEndpoint(kind, tls)))
  const webhooks: Hostile['webhooks'] = []
  for (const [n, { url }] of endpoints.entries()) {
    const account = accounts[n % accounts.length]!
    webhooks.push({ id: await arena.addWebhook(account, () => url, EVENTS), account })
  }
  return { endpoints, webhooks }
}
