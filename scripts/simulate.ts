/**
 * `make simulate`: webhooks through months, judged by the specification's words: `--webhooks` by the rules alone, minute by minute,
 * and `--stored` on the real modules and a database, in steps of `--step-minutes`.
 *
 *     node scripts/simulate.ts [--webhooks 1000] [--days 90] [--stored 100] [--step-minutes 30] [--seed 7]
 */
import { runSizedTests, seedSize } from './sized-tests.ts'

runSizedTests({
  title: 'simulate',
  files: ['test/webhooks/life-simulation.test.ts'],
  sizes: {
    webhooks: { setting: 'SIMULATED_WEBHOOKS', value: 1000, least: 100, most: 100_000 },
    days: { setting: 'SIMULATED_DAYS', value: 90, least: 60, most: 3650 },
    stored: { setting: 'SIMULATED_STORED', value: 100, least: 10, most: 1000 },
    'step-minutes': { setting: 'SIMULATED_STEP_MINUTES', value: 30, least: 1, most: 60 },
    seed: seedSize('SIMULATED_SEED'),
  },
})
