import { BARCODE_RACE } from './barcode-race.ts'
import { BUDGET_RACE } from './budget-race.ts'
import { LEAD_RACES } from './lead-races.ts'
import { LOGIN_RACE } from './login-races.ts'
import { MIDNIGHT_RACE } from './midnight-race.ts'
import { MONEY_CHECK } from './money-check.ts'
import type { Race } from './race-world.ts'
import { TURNS_RACE } from './turns-race.ts'
import { WEBHOOK_RACE } from './webhook-race.ts'

export const RACES: Race[] = [
  ...LEAD_RACES,
  MIDNIGHT_RACE,
  BARCODE_RACE,
  WEBHOOK_RACE,
  TURNS_RACE,
  BUDGET_RACE,
  LOGIN_RACE,
  MONEY_CHECK,
]
