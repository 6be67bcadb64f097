/** What one run of a row measured. A row may have several figures. */
export interface Result {
  name: string
  value: number
  unit: string
  /** What the machine itself reached just before or after, in the same unit. */
  limit?: number
  /** CPU time of each process, in microseconds each. */
  costUs?: Record<string, number>
  limitCostUs?: Record<string, number>
  note?: string
}

export function median(values: number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]!
}

export function sum(costs: Record<string, number>): number {
  return Object.values(costs).reduce((total, cost) => total + cost, 0)
}
