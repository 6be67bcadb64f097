/** A body of the size that a booking with a few tests has. */
export const BODY_BYTES = 1024

/** How much each row does. */
export interface Sizes {
  deliveries: number
  leads: number
  /** Before the clock starts, for both sides: connections are open, and most of the code is compiled. */
  warmUpLeads: number
  listCalls: number
  latencySeconds: number
}

export const FULL: Sizes = { deliveries: 100_000, leads: 25_000, warmUpLeads: 8000, listCalls: 200, latencySeconds: 20 }
/** Enough to see a ratio change by a tenth. */
export const QUICK: Sizes = { deliveries: 20_000, leads: 6000, warmUpLeads: 3000, listCalls: 100, latencySeconds: 3 }
