"""Recording torch modules. The only part of the package that imports torch."""
