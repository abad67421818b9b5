// Makes a component of src/plugin.js: `node build.mjs WORLD FILE`. `tribunal plugin build` runs it.
import { rm, writeFile } from 'node:fs/promises';
import { componentize } from '@bytecodealliance/componentize-js';

const [, , worldName, file] = process.argv;
const interfaces = { 'conflict-rule': 'rule', 'isolation-validator': 'validator', 'log-adaptor': 'adaptor' };
const exported = interfaces[worldName];

// A fault is a text. An Error that leaves an export would end the instance without its message, so each export throws the
// message instead.
const entry = 'src/.entry.js';
await writeFile(
  entry,
  `import * as plugin from './plugin.js';

const textOf = (error) => (error instanceof Error ? \`\${error.name}: \${error.message}\` : String(error));

const faulting = (methods) =>
  Object.fromEntries(
    Object.keys(methods).map((name) => [
      name,
      (...parameters) => {
        try {
          return methods[name](...parameters);
        } catch (error) {
          throw textOf(error);
        }
      },
    ]),
  );

export const lifecycle = faulting(plugin.lifecycle);
export const ${exported} = faulting(plugin.${exported});
`,
);
try {
  const { component } = await componentize({
    sourcePath: entry,
    witPath: 'wit',
    worldName,
    // Everything that would become an import. Without it, time stands still, "random" numbers are the same in each run,
    // and whatever is printed is lost.
    disableFeatures: ['clocks', 'fetch-event', 'http', 'random', 'stdio'],
  });
  await writeFile(file, component);
} finally {
  await rm(entry, { force: true });
}
