import { DomainError } from '../../src/errors.ts'

/** On a machine that is busy with others a transaction may not get done in its time; it has changed nothing then. */
export const TRIES = 10

export async function patiently<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof DomainError && error.kind === 'unavailable') || tries === TRIES) throw error
    }
  }
}
