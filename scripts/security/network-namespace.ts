/**
 * A network of its own for one process and its children, in which every address there is leads back to this machine: whoever
 * listens on a port hears each connection that is tried, whatever its address. Linux, with `unshare` and `ip`.
 */
import { spawn, spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'

/** Besides what the loopback has anyway: `local` means that the kernel takes the packets for its own. */
const EVERY_ADDRESS = 'ip link set lo up && ip route add local 0.0.0.0/0 dev lo && ip -6 route add local ::/0 dev lo'

/** Root needs no more; everybody else becomes the root of a namespace of users, where the system lets them. */
const UNSHARE = process.getuid?.() === 0 ? ['--net'] : ['--map-root-user', '--net']

/** @returns why there can be no such network here, or undefined */
export function namespaceFault(): string | undefined {
  if (process.platform !== 'linux') return 'only Linux has network namespaces'
  const { error, status, stderr } = spawnSync('unshare', [...UNSHARE, 'sh', '-c', EVERY_ADDRESS], { encoding: 'utf8' })
  if (error) return `unshare can't be run (${(error as NodeJS.ErrnoException).code})`
  return status === 0 ? undefined : `unshare: ${stderr.trim().split('\n').at(-1)}`
}

/** Runs a script of this project in a network of its own. @returns its exit code */
export async function runInNamespace(script: string, args: string[]): Promise<number> {
  const command = `${EVERY_ADDRESS} && exec "$0" "$@"`
  const child = spawn('unshare', [...UNSHARE, 'sh', '-c', command, process.execPath, script, ...args], {
    stdio: 'inherit',
  })
  // Ctrl-C reaches the child by itself.
  process.on('SIGTERM', () => child.kill('SIGTERM'))
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('exit', (code) => resolve(code ?? 1))
  })
}

/** How many connections were tried in this network so far: each of them sent a SYN. */
export function connectionsTried(): number {
  const [names, values] = readFileSync('/proc/net/snmp', 'utf8')
    .split('\n')
    .filter((line) => line.startsWith('Tcp:'))
    .map((line) => line.split(' ')) as [string[], string[]]
  return Number(values[names.indexOf('ActiveOpens')])
}
