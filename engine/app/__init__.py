"""The application: handlers with their routes, typed bodies, middleware, and a life cycle."""
