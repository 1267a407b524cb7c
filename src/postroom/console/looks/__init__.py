"""What `postroom doctor` looks at: the facts that `console.checks` judges, gathered without changing anything (10.16)."""
