/**
 * What the operating system says to a connection that can't be made: the database's fault, so that it is a 503 and not a 500.
 */
import { expect, test } from 'vitest'
import { describeConnectionFault } from '../../db/connection-fault.ts'
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

// The last one: a stranger to MySQL 8.4 is asked for a kind of password that it has not loaded, or not, by his name.
test.each([1045, 1698, 1524])(
  'a user who is refused with %i is to be corrected, and is the fault of the database',
  (errno) => {
    const refused = Object.assign(new Error('refused'), { errno, code: 'ER_SOMETHING' })
    expect(describeConnectionFault(refused, 'mysql://lis:x@db.example.com/lis')).toMatch(
      /^the database at db\.example\.com:3306 refuses the user lis: correct the user or the password in MYSQL_URL/,
    )
    expect(isConnectionFault(refused)).toBe(true)
  },
)

test('a node of a cluster that is not ready is said to be one', () => {
  const refused = Object.assign(new Error('WSREP has not yet prepared node for application use'), { errno: 1047 })
  expect(describeConnectionFault(refused, 'mysql://lis:x@db.example.com/lis')).toBe(
    'the database at db.example.com:3306 is a node of a cluster and not ready (WSREP has not yet prepared node for application use): see to the cluster, or name another node in MYSQL_URL',
  )
  expect(isConnectionFault(refused)).toBe(true)
})
