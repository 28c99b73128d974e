from pkgutil import extend_path

__path__ = extend_path(globals()["__path__"], __name__)
