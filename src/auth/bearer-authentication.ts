/**
 * Who calls, by the `Authorization` header alone. Integrators come through passport's bearer strategy; the lab's own
 * systems have keys.
 */
import { Passport } from 'passport'
import { Strategy as BearerStrategy } from 'passport-http-bearer'
import type { Request } from 'express'
import type { Knex } from 'knex'
import type { Account } from '../accounts/accounts-repository.ts'
import { hashSecret } from '../crypto.ts'
import { unauthorized } from '../errors.ts'
import type { AccessTokens } from './access-token.ts'
import { findOperatorKey, type OperatorKey } from './operator-keys-repository.ts'

/** Of two headers Node keeps the first, a proxy before us perhaps the last: where there are two, none counts. */
function authorizationOf(req: Request): string | undefined {
  const sent = req.headersDistinct.authorization
  return sent?.length === 1 ? sent[0] : undefined
}

/** @throws 401; its promise is the id of the account that the token was issued for, which may be gone since */
export type AuthenticateIntegrator = (req: Request) => Promise<string>

/**
 * passport-http-bearer also takes tokens from the body and the query, and answers 400 when there are two. Here a token counts in
 * the header only, so passport is shown nothing else. It knows one space after the scheme; RFC 9110 11.4 allows more.
 *
 * Nor may it see the request for another reason: the functions that it hangs on a strategy, five for each request, are old objects
 * to V8 from the start (what a property is set to in the code is expected to stay), so that all that they know of lives until the
 * whole heap is looked through.
 */
export function createIntegratorAuthentication(accessTokens: Pick<AccessTokens, 'verify'>): AuthenticateIntegrator {
  const passport = new Passport()
  passport.use(
    new BearerStrategy((token, done) => {
      accessTokens.verify(token).then((accountId) => done(null, accountId ?? false), done)
    }),
  )
  const accountIdOf = (authorization: string | undefined) =>
    new Promise<string>((resolve, reject) => {
      const shown = { headers: { authorization } } as Request
      passport.authenticate('bearer', { session: false }, (error: unknown, accountId: string | false) => {
        if (error) reject(error)
        else if (accountId) resolve(accountId)
        else reject(invalidAccessToken())
      })(shown, undefined, reject)
    })
  return (req) => accountIdOf(authorizationOf(req)?.replace(/^(Bearer) +/i, '$1 '))
}

/** @throws 401 where a token's account is gone */
export function requireAccount(account: Account | undefined): Account {
  if (!account) throw invalidAccessToken()
  return account
}

function invalidAccessToken() {
  return unauthorized('invalid access token', 'invalid_access_token')
}

/** @throws 401 unless the header carries a key that was not revoked */
export async function authenticateOperator(knex: Knex, req: Request): Promise<OperatorKey> {
  const key = /^Bearer +([A-Za-z0-9_-]{1,200})$/i.exec(authorizationOf(req) ?? '')?.[1]
  const known = key === undefined ? undefined : await findOperatorKey(knex, hashSecret(key))
  if (!known) throw unauthorized('invalid operator key', 'invalid_operator_key')
  return known
}
