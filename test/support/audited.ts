import type { TestApp } from './app.ts'

/** How many calls of an operation left an audit entry that names this id. */
export async function countAudited(app: TestApp, operation: string, id: string): Promise<number> {
  const rows = await app.database.knex('audit_entries').where({ operation }).where('targets', 'like', `%${id}%`)
  return rows.length
}
