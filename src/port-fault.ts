/**
 * Why a port can't be listened on, in one sentence that says which setting to change.
 */

export interface WantedPort {
  host: string
  port: number
  /** Where the port comes from. */
  setting: string
  hostSetting: string
}

/** @param error what listening has thrown */
export function describePortFault(error: unknown, { host, port, setting, hostSetting }: WantedPort): string {
  const { code } = error as NodeJS.ErrnoException
  if (code === 'EADDRINUSE') {
    return `port ${port} on ${host} is taken: stop what uses it, or set ${setting} (0 takes a free one)`
  }
  if (code === 'EACCES') return `port ${port} may not be opened by this user: set ${setting} to one above 1023`
  if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND' || code === 'EAI_AGAIN') {
    return `${host} is no address of this machine: correct ${hostSetting}`
  }
  return `port ${port} on ${host} can't be opened (${code}): set ${setting} or ${hostSetting}`
}

/** Whether it is about a port to listen on, or the name of its host. */
export function isPortFault(error: unknown): boolean {
  return ['listen', 'bind', 'getaddrinfo'].includes((error as NodeJS.ErrnoException).syscall ?? '')
}
