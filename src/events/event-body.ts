/**
 * What the bodies of all events have in common: the envelope, the parties and the lists of items.
 */
import type { components } from '../generated/client.ts'
import { publicEventId } from '../ids.ts'
import type { EventType, RecordedEvent } from './event-types.ts'
import { boundedBody, type Cutter } from './payload-bounds.ts'

type Schemas = components['schemas']

/** What the envelope and the routing take from a record. */
export interface Subject {
  id: string
  accountId: string
  labId: string
  integratorId: string | null
  corporateId: string | null
  doctorId: string | null
  hospitalId: string | null
}

/** @param at the time of the event */
export function recorded<Type extends EventType>(
  type: Type,
  eventId: string,
  at: Date,
  subject: Subject,
  data: (cutter: Cutter) => object,
): RecordedEvent & { type: Type } {
  const { accountId, labId, corporateId, doctorId, hospitalId } = subject
  const organization = doctorId ?? hospitalId
  const body = boundedBody((cutter) => ({
    id: publicEventId(eventId),
    type,
    timestamp: at.toISOString(),
    labID: labId,
    integratorID: subject.integratorId === null ? null : cutter.id(subject.integratorId),
    ...(corporateId === null ? {} : { corporateUser: corporateId }),
    ...(organization === null ? {} : { organization }),
    data: { ...data(cutter), ...cutter.mark },
  }))
  return { id: eventId, accountId, labId, type, subjectId: subject.id, corporateId, doctorId, hospitalId, body }
}

export function partiesOf({ corporateId, doctorId, hospitalId }: Subject) {
  return { corporateUser: corporateId, referredOrganization: doctorId, referredHospitalOrganization: hospitalId }
}

/** A test or package of a record. `itemId` null: unmapped. */
export interface PayloadItem {
  kind: 'test' | 'package'
  itemId: string | null
  name: string
  price: number | null
  /** The names that an unmapped package came with. */
  tests?: string[] | null
}

type PayloadItems = Pick<
  Schemas['BookingPayload'],
  | 'tests'
  | 'testsCount'
  | 'packages'
  | 'packagesCount'
  | 'unmappedTests'
  | 'unmappedTestsCount'
  | 'unmappedPackages'
  | 'unmappedPackagesCount'
>

export function itemsOf(all: PayloadItem[], cutter: Cutter): PayloadItems {
  const mapped = (kind: PayloadItem['kind']) =>
    cutter.list(
      all
        .filter((item) => item.kind === kind)
        .flatMap(({ itemId, name, price }) => {
          return itemId === null ? [] : [{ id: itemId, name, price }]
        }),
    )
  const unmapped = (kind: PayloadItem['kind']) =>
    cutter.list(all.filter((item) => item.kind === kind && item.itemId === null))
  const tests = mapped('test')
  const packages = mapped('package')
  const unmappedTests = unmapped('test')
  const unmappedPackages = unmapped('package')
  return {
    tests: tests.items.map(({ id, name, price }) => ({ test: id, name: cutter.name(name), cost: price })),
    ...(tests.count === undefined ? {} : { testsCount: tests.count }),
    packages: packages.items.map(({ id, name, price }) => ({ package: id, name: cutter.name(name), price })),
    ...(packages.count === undefined ? {} : { packagesCount: packages.count }),
    unmappedTests: unmappedTests.items.map(({ name, price }) => ({ name: cutter.name(name), cost: price })),
    ...(unmappedTests.count === undefined ? {} : { unmappedTestsCount: unmappedTests.count }),
    unmappedPackages: unmappedPackages.items.map(({ name, price, tests: names }) => ({
      name: cutter.name(name),
      price,
      ...(names ? testNames(names, cutter) : {}),
    })),
    ...(unmappedPackages.count === undefined ? {} : { unmappedPackagesCount: unmappedPackages.count }),
  }
}

function testNames(names: string[], cutter: Cutter): { tests: string[]; testsCount?: number } {
  const { items, count } = cutter.list(names)
  return {
    tests: items.map((name) => cutter.name(name)),
    ...(count === undefined ? {} : { testsCount: count }),
  }
}
