// Rules beyond those of the compiler: unawaited promises, untyped values.
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist/", "build/", "src/wire/"] },
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { project: "./tsconfig.json", tsconfigRootDir: import.meta.dirname } },
    rules: {
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true, allowBoolean: true }],
      // Callers name the type of a row, which is `JsonValue` by default.
      "@typescript-eslint/no-unnecessary-type-parameters": "off",
    },
  },
  {
    files: ["test/**"],
    // The test runner awaits what `test` returns.
    rules: { "@typescript-eslint/no-floating-promises": ["error", { allowForKnownSafeCalls: ["test", "describe", "it"] }] },
  },
);
