/** A patient's login as an integrator calls it. */
import type { TestApp } from './app.ts'
import type { TestAccount } from './builders.ts'

export interface LoginWorld {
  app: TestApp
  account: TestAccount
  contact: string
}

/** @param own asked at each call: a test may have an account and a contact of its own */
export function loginCalls(own: () => LoginWorld) {
  /** Access tokens end while the clock is moved on. */
  const tokenOf = async ({ id }: TestAccount) => (await own().app.accessTokens.issue(id)).token
  const texts = (number = own().contact) =>
    own()
      .app.sms.taken.filter(({ to }) => to === number)
      .map(({ text }) => text)
  return {
    async requestOtp(number: unknown = own().contact, caller = own().account) {
      const { app } = own()
      const answer = await app.call('POST', '/client/patient/getLoginOTP', {
        token: await tokenOf(caller),
        body: { contact: number },
      })
      await app.smsSender.settle()
      return answer
    },
    async verify(otpToken: unknown, otp: unknown, caller = own().account) {
      const token = await tokenOf(caller)
      return own().app.call('POST', '/client/patient/verifyLoginOTP', { token, body: { otp, otpToken } })
    },
    texts,
    /** The digits of the last SMS. */
    lastCode: (number = own().contact) => /^(\d{6}) /.exec(texts(number).at(-1)!)![1]!,
  }
}
