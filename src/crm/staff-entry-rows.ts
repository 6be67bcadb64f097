/**
 * An entry as staff see it. Pure.
 */
import type { components } from '../generated/operator.ts'
import type { Entry } from './entry-rules.ts'

export function toStaffEntry(entry: Entry): components['schemas']['StaffEntry'] {
  const { phlebotomist } = entry
  return {
    leadId: entry.id,
    version: entry.version,
    phase: entry.phase,
    labID: entry.labId,
    integratorID: entry.integratorId,
    firstName: entry.firstName,
    lastName: entry.lastName,
    contact: entry.contact,
    email: entry.email,
    bookingType: entry.bookingType,
    scheduledAt: entry.scheduledAt?.toISOString() ?? null,
    bookingStatus: entry.bookingStatus,
    paymentStatus: entry.paymentStatus,
    paymentMethod: entry.paymentMethod,
    convertedAt: entry.convertedAt?.toISOString() ?? null,
    assignedTo: entry.assignedTo,
    phlebotomist: phlebotomist && { phlebotomistId: phlebotomist.id, name: phlebotomist.name },
    corporateUser: entry.corporateId,
    referredOrganization: entry.doctorId,
    referredHospitalOrganization: entry.hospitalId,
    items: entry.items.map(({ kind, itemId, name, price }, index) => ({
      item: index + 1,
      kind,
      id: itemId,
      name,
      price,
    })),
    discountAmount: entry.discountAmount,
    totalAmount: entry.totalAmount,
    details: entry.details,
    createdAt: entry.createdAt.toISOString(),
  }
}
