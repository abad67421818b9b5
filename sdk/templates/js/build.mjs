// Makes a component of src/plugin.js: `node build.mjs WORLD FILE`. `tribunal plugin build` runs it.
import { writeFile } from 'node:fs/promises';
import { componentize } from '@bytecodealliance/componentize-js';

const [, , worldName, file] = process.argv;
const { component } = await componentize({
  sourcePath: 'src/plugin.js',
  witPath: 'wit',
  worldName,
  // Everything that would become an import. Without it, time stands still, "random" numbers are the same in each run, and
  // whatever is printed is lost.
  disableFeatures: ['clocks', 'fetch-event', 'http', 'random', 'stdio'],
});
await writeFile(file, component);
