/**
 * Milliseconds on a clock that all processes of this machine share; its zero means nothing. `monotonicMs` begins with its
 * process, so that what two processes measured with it can't be compared.
 */
export function machineMs(): number {
  return Number(process.hrtime.bigint()) / 1e6
}
