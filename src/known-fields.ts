/**
 * Which places of a body a schema knows. What it does not know is ignored, whatever it is.
 */

/** Without references: they have been put in. */
export interface JsonSchema {
  properties?: Record<string, JsonSchema>
  items?: JsonSchema
  additionalProperties?: JsonSchema | boolean
  allOf?: JsonSchema[]
  anyOf?: JsonSchema[]
  oneOf?: JsonSchema[]
  then?: JsonSchema
  else?: JsonSchema
}

/** From the outermost on: names, and places in lists. */
export type BodyPath = readonly (string | number)[]

/**
 * @param at where the path goes on in this schema
 * @returns whether some part of the schema says something of this place
 */
export function isKnownPlace(schema: JsonSchema | undefined, path: BodyPath, at = 0): boolean {
  if (schema === undefined) return false
  if (at === path.length) return true
  const { allOf = [], anyOf = [], oneOf = [], then, else: otherwise } = schema
  return (
    isKnownInside(schema, path, at) ||
    [...allOf, ...anyOf, ...oneOf, then, otherwise].some((part) => isKnownPlace(part, path, at))
  )
}

function isKnownInside(schema: JsonSchema, path: BodyPath, at: number): boolean {
  const { properties = {}, items, additionalProperties } = schema
  const step = path[at]!
  if (typeof step === 'number') return isKnownPlace(items, path, at + 1)
  if (Object.hasOwn(properties, step)) return isKnownPlace(properties[step], path, at + 1)
  // Names that the caller chooses: all that is in them is kept.
  return (
    additionalProperties === true ||
    (typeof additionalProperties === 'object' && isKnownPlace(additionalProperties, path, at + 1))
  )
}
