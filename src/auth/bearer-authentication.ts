/**
 * Who calls, by the `Authorization` header alone. Integrators come through passport's bearer strategy; the lab's own
 * systems have keys.
 */
import { Passport } from 'passport'
import { Strategy as BearerStrategy, type VerifyFunction } from 'passport-http-bearer'
import type { Request, Response } from 'express'
import type { Knex } from 'knex'
import type { Account } from '../accounts/accounts-repository.ts'
import { hashSecret } from '../crypto.ts'
import { unauthorized } from '../errors.ts'
import type { AccessTokens } from './access-token.ts'
import { findOperatorKey, type OperatorKey } from './operator-keys-repository.ts'
import type { RecentAccounts } from './recent-accounts.ts'

/**
 * passport-http-bearer also takes tokens from the body and the query, and answers 400 when there are two. Here a token
 * counts in the header only, so the strategy is shown nothing else.
 */
class HeaderBearerStrategy extends BearerStrategy<VerifyFunction> {
  override authenticate(req: Request): void {
    super.authenticate({ headers: { authorization: authorizationOf(req) } } as Request)
  }
}

/** Of two headers Node keeps the first, a proxy before us perhaps the last: where there are two, none counts. */
function authorizationOf(req: Request): string | undefined {
  const sent = req.headersDistinct.authorization
  return sent?.length === 1 ? sent[0] : undefined
}

export type AuthenticateIntegrator = (req: Request, res: Response) => Promise<Account>

export function createIntegratorAuthentication(
  accessTokens: AccessTokens,
  accounts: RecentAccounts,
): AuthenticateIntegrator {
  const passport = new Passport()
  passport.use(
    new HeaderBearerStrategy((token, done) => {
      accessTokens
        .verify(token)
        .then((accountId) => (accountId === undefined ? undefined : accounts.get(accountId)))
        .then((account) => done(null, account ?? false), done)
    }),
  )
  return (req, res) =>
    new Promise((resolve, reject) => {
      passport.authenticate('bearer', { session: false }, (error: unknown, account: Account | false) => {
        if (error) reject(error)
        else if (account) resolve(account)
        else reject(unauthorized('invalid access token', 'invalid_access_token'))
      })(req, res, reject)
    })
}

/** @throws 401 unless the header carries a key that was not revoked */
export async function authenticateOperator(knex: Knex, req: Request): Promise<OperatorKey> {
  const key = /^Bearer ([A-Za-z0-9_-]{1,200})$/i.exec(authorizationOf(req) ?? '')?.[1]
  const known = key === undefined ? undefined : await findOperatorKey(knex, hashSecret(key))
  if (!known) throw unauthorized('invalid operator key', 'invalid_operator_key')
  return known
}
