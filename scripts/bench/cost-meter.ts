import { cpuSeconds } from './bench-world.ts'

/** CPU time of processes from now on; ask with how many of what they did meanwhile. */
export async function startMeter<Part extends string>(
  pids: Record<Part, number>,
): Promise<(count: number) => Promise<Record<Part, number>>> {
  const read = async () => {
    const seconds = await Promise.all(Object.values<number>(pids).map(cpuSeconds))
    return Object.keys(pids).map((part, n) => [part, seconds[n]!] as const)
  }
  const before = new Map(await read())
  return async (count) =>
    Object.fromEntries(
      (await read()).map(([part, now]) => [part, ((now - before.get(part)!) / count) * 1e6]),
    ) as Record<Part, number>
}
