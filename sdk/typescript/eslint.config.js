// Rules beyond the compiler's: promises that nobody waits for, values of no type.
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist/", "src/wire/"] },
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { project: "./tsconfig.json", tsconfigRootDir: import.meta.dirname } },
    rules: {
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true, allowBoolean: true }],
      // Callers name the row's type themselves; `JsonValue` stands where they do not.
      "@typescript-eslint/no-unnecessary-type-parameters": "off",
    },
  },
  {
    files: ["test/**"],
    // The test runner waits for what `test` returns.
    rules: { "@typescript-eslint/no-floating-promises": ["error", { allowForKnownSafeCalls: ["test", "describe", "it"] }] },
  },
);
