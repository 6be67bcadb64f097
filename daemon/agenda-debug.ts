/**
 * To be loaded before everything that loads `debug`. Agenda makes a logger of it for each step of each job, and each asks the system
 * whether stderr is a terminal, unless the environment says whether there are colours.
 */
process.env.DEBUG_COLORS ??= 'no'
