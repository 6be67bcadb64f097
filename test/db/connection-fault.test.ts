/**
 * What the operating system says to a connection that can't be made: the database's fault, so that it is a 503 and not a 500.
 */
import { expect, test } from 'vitest'
import { isConnectionFault } from '../../db/connection.ts'

const fault = (code: string, syscall: string) => Object.assign(new Error(`${syscall} ${code}`), { code, syscall })

// EAGAIN: its queue on a Unix socket is full, as that of a server which stands still is after a while.
test.each(['EAGAIN', 'ENOBUFS', 'ENOMEM', 'EHOSTDOWN', 'EMFILE', 'ENFILE', 'EADDRNOTAVAIL', 'EACCES', 'EPERM'])(
  '%s of a connect is the fault of the database',
  (code) => expect(isConnectionFault(fault(code, 'connect'))).toBe(true),
)

test.each(['EACCES', 'EPERM', 'ENOMEM'])('%s of a file is not', (code) => {
  expect(isConnectionFault(fault(code, 'open'))).toBe(false)
})
