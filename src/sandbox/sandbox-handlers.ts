import { Readable } from 'node:stream'
import { findLab } from '../catalogue/labs-repository.ts'
import { findEntry } from '../crm/staff-entries-repository.ts'
import { DomainError, labForbidden } from '../errors.ts'
import type { AccountHandler, HandlerDeps } from '../handlers.ts'
import { publishedLinks } from '../signed-link.ts'
import { textPdf } from '../text-pdf.ts'
import {
  requireWalkable,
  walkToCancellation,
  walkToCompletion,
  type WalkEnd,
  type WalkRequest,
} from './sandbox-walk.ts'

interface SandboxHandlers {
  walkSandboxEntry: AccountHandler<'walkSandboxEntry'>
}

export function sandboxHandlers({ database, clock, hint, keys, baseUrl, reportStore }: HandlerDeps): SandboxHandlers {
  const storePdf = (line: string) => reportStore.receive(Readable.from([textPdf(['Sandbox', line])]), clock.nowMs())

  return {
    async walkSandboxEntry({ account, body }) {
      if (!account.sandbox) throw liveAccount()
      const lab = await findLab(database.knex, account.id, body.labID)
      if (!lab?.active) throw labForbidden('labID')
      // Before anything is stored for it; decided again under the entry's lock.
      requireWalkable(await findEntry(database.knex, account.id, body.leadId), lab.id, body.leadId)
      const walk = (action: (request: WalkRequest) => Promise<WalkEnd>) =>
        database.transaction((trx) => {
          const links = publishedLinks(keys, baseUrl())
          return action({ trx, clock, account, labId: lab.id, leadId: body.leadId, links })
        })
      const { booking, billId, reportId } =
        body.ending === 'cancelled' ? await walk(walkToCancellation) : await walk(await completion())
      hint()
      const data = { leadId: booking.id, bookingStatus: booking.bookingStatus, billId, reportId }
      return { status: 200, body: { success: true, message: 'Entry walked', data } }
    },
  }

  /** The files come first, as with every report; where the walk is refused the store sweeps them later. */
  async function completion() {
    const report = await storePdf('A report, as a lab would sign it off')
    const amendment = await storePdf('The report, as a lab would amend it')
    return (request: WalkRequest) => walkToCompletion(request, [report, amendment])
  }
}

function liveAccount(): DomainError {
  return new DomainError('forbidden', 'sandbox_only', 'the account is live: only a sandbox can walk entries')
}
