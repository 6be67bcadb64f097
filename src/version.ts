import packageJson from '../package.json' with { type: 'json' }

/** The service's version: in `user-agent`, in logs and in the health answer. */
export const VERSION: string = packageJson.version
