/**
 * Ports: told to be taken before anything is started, and the URL of one that listens.
 */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { portsOf, type Config } from '../src/config.ts'
import { describePortFault } from '../src/port-fault.ts'
import { equalPortFaults } from '../src/setting-faults.ts'
import { StartFault } from './processes.ts'

export { urlOf } from '../src/http-server.ts'

/**
 * Tries each port that the settings name. A port can still be taken a moment later; then the process that wants it says so
 * itself.
 * @throws StartFault that says which, and what to set
 */
export async function refuseTakenPorts(config: Config): Promise<void> {
  // Also those that nobody has set: here all of them are on one machine.
  const [equal] = equalPortFaults(portsOf(config))
  if (equal) throw new StartFault(equal)
  // Another API that shares them may be there already.
  const { reusePort } = config
  await tryTcp('PORT', 'HOST', config.host, config.port, reusePort)
  await tryTcp('DAEMON_PORT', 'DAEMON_HOST', config.daemonHost, config.daemonPort)
  await tryUdp('DAEMON_PORT', config.daemonHost, config.daemonPort)
  if (config.operatorPort) await tryTcp('OPERATOR_PORT', 'HOST', config.host, config.operatorPort, reusePort)
  if (config.metricsPort)
    await tryTcp('METRICS_PORT', 'METRICS_HOST', config.metricsHost, config.metricsPort, reusePort)
}

async function tryTcp(
  setting: string,
  hostSetting: string,
  host: string,
  port: number,
  reusePort = false,
): Promise<void> {
  const server = createServer()
  try {
    server.listen({ port, host, reusePort })
    await once(server, 'listening')
  } catch (error) {
    throw new StartFault(describePortFault(error, { host, port, setting, hostSetting }))
  } finally {
    server.close()
  }
}

/** The daemon's hints are datagrams on the same number. */
async function tryUdp(setting: string, host: string, port: number): Promise<void> {
  const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4')
  try {
    socket.bind(port, host)
    await once(socket, 'listening')
  } catch (error) {
    throw new StartFault(describePortFault(error, { host, port, setting, hostSetting: 'DAEMON_HOST' }))
  } finally {
    socket.close()
  }
}
