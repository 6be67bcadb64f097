/** What is remembered of an account whose leads were looked up, and for how long it serves. */
import { expect, test } from 'vitest'
import type { EntryRequest } from '../../src/crm/entry-rules.ts'
import { EntryForesight, type LookedUp } from '../../src/crm/foreseen-entries.ts'

const body = (branchID: string) => ({ branchID, first_name: 'Asha' }) as EntryRequest
const foundOf = (id: string, fields: Partial<LookedUp['references']> = {}, state: string | undefined = 's') =>
  ({
    account: { id },
    references: { labIsActive: true, settings: { assignStrategy: 'round_robin', customFields: [] }, candidates: [{ id: 't', openLeads: 0 }], lastTelecallerId: null, ...fields }, // prettier-ignore
    state,
  }) as LookedUp
const learnTwice = (foresight: EntryForesight, found: LookedUp, lab = 'l') => {
  foresight.learn(body(lab), found, null)
  foresight.learn(body(lab), found, null)
}
const take = (foresight: EntryForesight, ids: string[], lab = 'l') =>
  foresight.take(ids.map((accountId) => ({ accountId, body: body(lab) })))

test('serves from the second time on that it was found, and nobody else meanwhile', () => {
  const foresight = new EntryForesight()
  foresight.learn(body('l'), foundOf('a'), 't')
  expect(take(foresight, ['a'])).toBeUndefined()
  foresight.learn(body('l'), foundOf('a'), 't')
  expect(take(foresight, ['a'])).toBeUndefined()
  foresight.learn(body('l'), foundOf('a', { lastTelecallerId: 't' }), 't')
  const [known] = take(foresight, ['a'])!
  expect(known!.references.lastTelecallerId).toBe('t')
  expect(take(foresight, ['a'])).toBeUndefined()
  foresight.keep(known!, 'u')
  expect(take(foresight, ['a'])![0]!.references.lastTelecallerId).toBe('u')
})

test('is of the account: a further lab need only be found once', () => {
  const foresight = new EntryForesight()
  learnTwice(foresight, foundOf('a'))
  expect(take(foresight, ['a'], 'm')).toBeUndefined()
  foresight.learn(body('m'), foundOf('a'), 't')
  const [known] = take(foresight, ['a'], 'l')!
  expect(known!.references.lastTelecallerId).toBe('t')
  foresight.keep(known!, 'u')
  expect(take(foresight, ['a'], 'm')![0]!.references.lastTelecallerId).toBe('u')
})

test('is nothing of what it was once something else is found, of whichever lab', () => {
  const foresight = new EntryForesight()
  for (const lab of ['l', 'm']) learnTwice(foresight, foundOf('a'), lab)
  learnTwice(foresight, foundOf('a', {}, 'other'), 'n')
  for (const lab of ['l', 'm']) expect(take(foresight, ['a'], lab)).toBeUndefined()
  expect(take(foresight, ['a'], 'n')).toMatchObject([{ state: 'other' }])
})

test('has to be found once more when it has not served, and is wrong where somebody else had a turn', () => {
  const foresight = new EntryForesight()
  learnTwice(foresight, foundOf('a'))
  const tried = () => take(foresight, ['a'])![0]!
  foresight.doubt(tried())
  expect(take(foresight, ['a'])).toBeUndefined()
  foresight.learn(body('l'), foundOf('a'), 't')
  foresight.doubt(tried())
  foresight.learn(body('l'), foundOf('a', { lastTelecallerId: 'u' }), null)
  expect(take(foresight, ['a'])).toBeUndefined()
})

test('is left where one of a group is not known', () => {
  const foresight = new EntryForesight()
  learnTwice(foresight, foundOf('a'))
  expect(take(foresight, ['a', 'b'])).toBeUndefined()
  expect(take(foresight, ['a'])).toHaveLength(1)
})

test('is nothing that changes with each lead, of no inactive lab, and no long list', () => {
  const foresight = new EntryForesight()
  learnTwice(foresight, foundOf('a', { settings: { assignStrategy: 'least_open', customFields: [] } as never }))
  learnTwice(foresight, foundOf('b', { labIsActive: false }))
  learnTwice(foresight, foundOf('c', { candidates: Array.from({ length: 51 }, (_, n) => ({ id: `t${n}`, openLeads: 0 })) })) // prettier-ignore
  learnTwice(foresight, { ...foundOf('d'), state: undefined })
  for (const id of 'abcd') expect(take(foresight, [id])).toBeUndefined()
  learnTwice(foresight, foundOf('e', { settings: { assignStrategy: 'least_open', customFields: [] } as never, candidates: [] })) // prettier-ignore
  expect(take(foresight, ['e'])).toHaveLength(1)
})

test('is of 5,000 accounts at most, and of 10 labs of each, those of the last leads', () => {
  const foresight = new EntryForesight()
  for (let n = 0; n <= 5000; n++) learnTwice(foresight, foundOf(`a${n}`))
  expect(take(foresight, ['a0'])).toBeUndefined()
  expect(take(foresight, ['a1'])).toHaveLength(1)
  for (let n = 1; n <= 10; n++) foresight.learn(body(`l${n}`), foundOf('a5000'), null)
  expect(take(foresight, ['a5000'], 'l')).toBeUndefined()
  expect(take(foresight, ['a5000'], 'l1')).toHaveLength(1)
})
