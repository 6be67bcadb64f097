/** A body of the size that a booking with a few tests has. */
export const BODY_BYTES = 1024
