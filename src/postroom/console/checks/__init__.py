"""What `postroom doctor` judges: small pure functions over facts, one module for each part of what can be wrong (10.16)."""
